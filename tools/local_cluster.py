"""Run a cluster of real node processes on loopback, for the demo, bench and cluster tests.

This module does not depend on the server's internals: it starts the program of ``taskraft serve``
and uses the public API.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import grpc

from taskraft.v1 import cluster_service_pb2
from tools.free_addresses import free_addresses
from tools.local_node import Node, NodeFailed, plain_channel

READY_TIMEOUT_MS: Final = 30_000
"""Maximum time from the start of a cluster until it serves, on a busy machine."""

POLL_MS: Final = 20

Phase = cluster_service_pb2.NodeState


class ClusterSecurity(Protocol):
    """Certificates and credentials of a cluster with TLS and access control."""

    def settings_of(self, node: str) -> Mapping[str, str]:
        """Return the environment variables of a node with its certificates."""

    def connect(self, address: str) -> grpc.Channel:
        """Return a channel to a client port, whose calls may read the state of the cluster."""


class LocalCluster:
    """Some nodes that form one cluster.

    Args:
        size: number of nodes.
        folder: folder for data and logs; created if missing.
        settings: further environment variables, for example ``{"TASKRAFT_AUTO_CREATE_TUBES":
            "true"}``.
        security: TLS and access control; None: neither.
    """

    def __init__(
        self,
        size: int,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        security: ClusterSecurity | None = None,
    ) -> None:
        addresses = free_addresses(3 * size)
        clients, peers, https = addresses[:size], addresses[size : 2 * size], addresses[2 * size :]
        members = ",".join(
            f"n{place}={place}@{peer}/{client}"
            for place, (peer, client) in enumerate(zip(peers, clients, strict=True), start=1)
        )
        shared = {
            "TASKRAFT_CLUSTER_ID": folder.name,
            "TASKRAFT_PEERS": members,
            "TASKRAFT_LOG_FORMAT": "json",
            **(settings or {}),
        }
        self._folder: Final = folder
        self._settings: Final = dict(settings or {})
        self._security: Final = security
        self.nodes: tuple[Node, ...] = tuple(
            Node(
                name=f"n{place}",
                folder=folder / f"n{place}",
                address=client,
                peer_address=peer,
                http_address=http,
                environment={
                    **shared,
                    "TASKRAFT_NODE_NAME": f"n{place}",
                    "TASKRAFT_DATA_DIR": str(folder / f"n{place}" / "data"),
                    "TASKRAFT_LISTEN": client,
                    "TASKRAFT_PEER_LISTEN": peer,
                    "TASKRAFT_HTTP_LISTEN": http,
                    **self._security_of(f"n{place}"),
                },
                connect=self._connect,
            )
            for place, (client, peer, http) in enumerate(
                zip(clients, peers, https, strict=True), start=1
            )
        )

    def joiner(self, name: str) -> Node:
        """Return a further node, which joins the cluster when it is started."""
        client, peer, http = free_addresses(3)
        folder = self._folder / name
        node = Node(
            name=name,
            folder=folder,
            address=client,
            peer_address=peer,
            http_address=http,
            environment={
                "TASKRAFT_CLUSTER_ID": self._folder.name,
                "TASKRAFT_LOG_FORMAT": "json",
                **self._settings,
                "TASKRAFT_JOIN": self._join_target,
                "TASKRAFT_NODE_NAME": name,
                "TASKRAFT_DATA_DIR": str(folder / "data"),
                "TASKRAFT_LISTEN": client,
                "TASKRAFT_PEER_LISTEN": peer,
                "TASKRAFT_HTTP_LISTEN": http,
                **self._security_of(name),
            },
            connect=self._connect,
        )
        self.nodes = (*self.nodes, node)
        return node

    def _security_of(self, name: str) -> Mapping[str, str]:
        return {} if self._security is None else self._security.settings_of(name)

    def _connect(self, address: str) -> grpc.Channel:
        return plain_channel(address) if self._security is None else self._security.connect(address)

    @property
    def _join_target(self) -> str:
        """Addresses that a joining node asks: with certificates of nodes, the peer ports."""
        if self._security is None:
            return self.target
        return ",".join(node.peer_address for node in self.nodes)

    @property
    def target(self) -> str:
        """Addresses of all nodes, as a client target."""
        return ",".join(node.address for node in self.nodes)

    def start(self) -> None:
        """Start all nodes; see ``wait_ready``."""
        for node in self.nodes:
            node.start()

    def running(self) -> Iterator[Node]:
        """Yield the running nodes."""
        return (node for node in self.nodes if node.is_running)

    def leader(self) -> Node | None:
        """Return the running node that leads and serves; None if there is none."""
        for node in self.running():
            state = node.state()
            if state and state.state.phase == Phase.RUNNING and state.leader == node.name:
                return node
        return None

    def is_ready(self) -> bool:
        """Return whether one node leads and serves, and all other running nodes follow it."""
        states = [node.state() for node in self.running()]
        phases = sorted(state.state.phase for state in states if state)
        if len(phases) < len(states) or len({state.leader for state in states if state}) != 1:
            return False
        return phases == [Phase.RUNNING] + [Phase.WAITING] * (len(states) - 1)

    def wait_ready(self, timeout_ms: int = READY_TIMEOUT_MS) -> Node:
        """Wait until the running nodes serve; return the leader.

        Raises:
            NodeFailed: a node exited, or the cluster does not serve in time.
        """
        until = time.monotonic_ns() + timeout_ms * 1_000_000
        started = list(self.running())
        while time.monotonic_ns() < until:
            for node in started:
                if not node.is_running:
                    raise NodeFailed(f"{node.name} exited during the start:{node.tail()}")
            if self.is_ready() and (leader := self.leader()) is not None:
                return leader
            time.sleep(POLL_MS / 1_000)
        logs = "".join(f"\n  {node.name}:{node.tail()}" for node in self.nodes)
        raise NodeFailed(f"the cluster does not serve after {timeout_ms} ms{logs}")

    def wait_until(
        self, is_so: Callable[[], bool], awaited: str, timeout_ms: int = READY_TIMEOUT_MS
    ) -> None:
        """Wait until a condition holds; ``awaited`` describes it for errors.

        Raises:
            NodeFailed: the condition does not hold in time.
        """
        until = time.monotonic_ns() + timeout_ms * 1_000_000
        while not is_so():
            if time.monotonic_ns() > until:
                logs = "".join(f"\n  {node.name}:{node.tail()}" for node in self.nodes)
                raise NodeFailed(f"timeout after {timeout_ms} ms: {awaited}{logs}")
            time.sleep(POLL_MS / 1_000)

    def close(self) -> None:
        """Kill all running nodes; keep the folders."""
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Self:
        """Start all nodes and wait until they serve."""
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill all nodes."""
        self.close()
