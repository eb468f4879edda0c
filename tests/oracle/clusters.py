"""Run the nodes that traces are played on: real processes of the service on loopback."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from time import monotonic
from types import TracebackType
from typing import Final, Self

from taskraft.v1 import cluster_service_pb2, tube_service_pb2
from tests.oracle import newest
from tests.oracle.connection import Stubs
from tests.oracle.refusals import Refused
from tools.local_cluster import LocalCluster

MEMORY: Final = Path("/dev/shm")
"""Where data is kept if possible: the traces' beats do not wait for a slow disk."""
SETTINGS: Final[Mapping[str, str]] = {
    "TASKRAFT_FEED_PARTITIONS": "1",
    "TASKRAFT_LOG_LEVEL": "warning",
}
DRIVERS: Final = "drivers"
"""Where the drivers that the nodes have are installed."""
READY_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.005
READ_ONLY_CALL_SECONDS: Final = 0.3

Phase = cluster_service_pb2.NodeState


def pause(seconds: float) -> None:
    """Let real time pass, as the recording did."""
    Event().wait(seconds)


def until(is_so: Callable[[], bool], seconds: float = READY_SECONDS) -> bool:
    """Wait until something is so; tell whether it came so far in time."""
    end = monotonic() + seconds
    while not is_so():
        if monotonic() > end:
            return False
        pause(POLL_SECONDS)
    return True


class Host:
    """A cluster for traces: one node, or two where a trace makes the queue read-only.

    With two voters neither can lead without the other: to end one of them makes the other stop
    serving, as a role switch does to the oracle.
    """

    def __init__(self, *, nodes: int = 1) -> None:
        place = MEMORY if MEMORY.is_dir() else None
        self._folder = tempfile.TemporaryDirectory(prefix="taskraft-oracle-", dir=place)
        folder = Path(self._folder.name)
        newest.install(folder / DRIVERS)
        found = os.pathsep.join(filter(None, (str(folder / DRIVERS), os.environ.get("PYTHONPATH"))))
        settings = {**SETTINGS, "PYTHONPATH": found}
        self._cluster = LocalCluster(nodes, folder, settings)
        self._node = self._cluster.nodes[0]
        self.is_read_only = False

    def __enter__(self) -> Self:
        """Start it and wait until it serves."""
        self._cluster.__enter__()
        self._node = self._cluster.leader() or self._node
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it and remove what it wrote."""
        self._cluster.close()
        self._folder.cleanup()

    @property
    def address(self) -> str:
        """Where clients reach the node that they are connected to."""
        return self._node.address

    def clean(self) -> None:
        """Remove all tubes, so that a trace finds the queue empty, and clients at the leader."""
        if self.is_read_only:
            self.make_writable()
        self._node = self._cluster.leader() or self._node
        stubs = Stubs(self.address)
        try:
            request = tube_service_pb2.ListTubesRequest()
            for tube in stubs.call(stubs.tubes.ListTubes, request).tubes:
                drop = tube_service_pb2.DropTubeRequest(name=tube.name, force=True)
                stubs.call(stubs.tubes.DropTube, drop)
        finally:
            stubs.close()

    def crash(self, down_seconds: float) -> None:
        """Kill the node, and start it again after a while."""
        self._node.kill()
        pause(down_seconds)
        self._node.start()
        self._cluster.wait_ready()

    def make_read_only(self) -> None:
        """Take the other node away, and wait until nobody leads."""
        for node in self._cluster.nodes:
            if node is not self._node:
                node.kill()
        self.is_read_only = True
        assert until(lambda: self.state() == "WAITING"), "the node leads without a majority"

    def make_writable(self) -> None:
        """Bring the other node back, and wait until one of them leads."""
        for node in self._cluster.nodes:
            if node is not self._node:
                node.start()
        self._cluster.wait_ready()
        self.is_read_only = False

    def state(self) -> str:
        """Return the state of the queue: RUNNING while any node serves, else this node's."""
        stubs = Stubs(self.address)
        try:
            request = cluster_service_pb2.GetClusterStateRequest()
            state = stubs.call(stubs.cluster.GetClusterState, request)
            if not self.is_read_only and self._cluster.leader() is not None:
                return "RUNNING"
            return Phase.Phase.Name(state.state.phase)
        except Refused:
            return "INIT"
        finally:
            stubs.close()
