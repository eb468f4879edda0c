"""Run the nodes for traces: real processes of the service on loopback."""

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
"""Folder for data, if it exists: in memory, so that a slow disk does not delay timed traces."""
SETTINGS: Final[Mapping[str, str]] = {
    "TASKRAFT_FEED_PARTITIONS": "1",
    "TASKRAFT_LOG_LEVEL": "warning",
}
DRIVERS: Final = "drivers"
"""Folder of the tube drivers that the nodes load."""
READY_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.005
READ_ONLY_CALL_SECONDS: Final = 0.3

Phase = cluster_service_pb2.NodeState


def pause(seconds: float) -> None:
    """Wait for real time to pass, as in the recording."""
    Event().wait(seconds)


def until(is_so: Callable[[], bool], seconds: float = READY_SECONDS) -> bool:
    """Wait until a condition holds; return whether it held before the time limit."""
    end = monotonic() + seconds
    while not is_so():
        if monotonic() > end:
            return False
        pause(POLL_SECONDS)
    return True


class Host:
    """A cluster for traces: one node, or two if a trace makes the queue read-only.

    With two voters, no node can lead alone. When one node is killed, the other node stops serving,
    like the oracle after a role switch.
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
        """Start the nodes and wait until one serves."""
        self._cluster.__enter__()
        self._node = self._cluster.leader() or self._node
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the nodes and remove their data."""
        self._cluster.close()
        self._folder.cleanup()

    @property
    def address(self) -> str:
        """Client address of the node that clients connect to."""
        return self._node.address

    def clean(self) -> None:
        """Remove all tubes, and let clients connect to the leader."""
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
        """Kill the node, and start it again after a delay."""
        self._node.kill()
        pause(down_seconds)
        self._node.start()
        self._cluster.wait_ready()

    def make_read_only(self) -> None:
        """Kill the other node, and wait until no node leads."""
        for node in self._cluster.nodes:
            if node is not self._node:
                node.kill()
        self.is_read_only = True
        assert until(lambda: self.state() == "WAITING"), "the node leads without a majority"

    def make_writable(self) -> None:
        """Start the other node again, and wait until one of the two nodes leads."""
        for node in self._cluster.nodes:
            if node is not self._node:
                node.start()
        self._cluster.wait_ready()
        self.is_read_only = False

    def state(self) -> str:
        """Return RUNNING while a node serves, otherwise the phase of this node."""
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
