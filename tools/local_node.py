"""Run one real node process on loopback.

Each node has its own folder with ``data`` and its output, "node.log".
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import BinaryIO, ClassVar, Final, Protocol

import grpc

from taskraft.v1 import cluster_service_pb2, cluster_service_pb2_grpc

STOP_TIMEOUT_MS: Final = 15_000
"""Maximum time for a node to transfer leadership, drain and sync after SIGTERM."""

ASK_TIMEOUT_MS: Final = 500
LOG_LINES_SHOWN: Final = 15

RETRY_QUICKLY: Final = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # also limits each attempt
    ("grpc.max_reconnect_backoff_ms", 200),
)


class NodeFailed(Exception):
    """A node exited unexpectedly or does not serve in time; the message ends with its output."""


@cache
def _lifeline() -> int:
    """Return the read end of a pipe that closes when this process ends, which stops the nodes."""
    reading, _ = os.pipe()
    return reading


def plain_channel(address: str) -> grpc.Channel:
    """Return a channel without TLS to a node."""
    return grpc.insecure_channel(address, options=RETRY_QUICKLY)


class NodeProcess(Protocol):
    """The process of a node; ``subprocess.Popen`` is one."""

    @property
    def pid(self) -> int:
        """Process id."""

    def poll(self) -> int | None:
        """Return the exit status; None if the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended; return its exit status.

        Raises:
            subprocess.TimeoutExpired: the process runs after ``timeout`` seconds.
        """

    def terminate(self) -> None:
        """Send SIGTERM if the process runs."""

    def kill(self) -> None:
        """Send SIGKILL if the process runs."""


class Launcher(Protocol):
    """Starts the process of a node."""

    def __call__(
        self,
        prefix: Sequence[str],
        command: Sequence[str],
        environment: Mapping[str, str],
        stdin: int,
        log: BinaryIO,
    ) -> NodeProcess:
        """Start a process.

        Args:
            prefix: program that starts the node, with its arguments; may be empty.
            command: a module and its arguments.
            environment: all variables of the process.
            stdin: descriptor of the standard input.
            log: receives the standard output and the errors.
        """


def start_program(
    prefix: Sequence[str],
    command: Sequence[str],
    environment: Mapping[str, str],
    stdin: int,
    log: BinaryIO,
) -> NodeProcess:
    """Start a new Python process for a node; the arguments are those of a ``Launcher``."""
    # In a new session, so that Ctrl-C reaches only this process, which then stops the nodes.
    return subprocess.Popen(
        [*prefix, sys.executable, "-m", *command],
        env=environment,
        stdin=stdin,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


@dataclass(slots=True)
class Node:
    """One node process; it can be killed and started again with the same data."""

    name: str
    folder: Path
    address: str
    """Address for clients."""
    peer_address: str
    http_address: str
    """Address of probes and metrics."""
    environment: Mapping[str, str]
    command_prefix: Sequence[str] = ()
    """Program that starts the node, for example in another mount namespace, with arguments."""
    module: str = "taskraft_service.process"
    """Module that runs the node; ``tests.failpoints`` reads TASKRAFT_FAILPOINTS."""
    connect: Callable[[str], grpc.Channel] = plain_channel
    """Returns a channel on which ``state`` may ask the node."""
    launcher: ClassVar[Launcher] = staticmethod(start_program)
    """Starts the processes of all nodes; tests use forks (tests/gate/forked_nodes.py)."""
    _process: NodeProcess | None = field(default=None, init=False)
    _channel: grpc.Channel | None = field(default=None, init=False)

    @property
    def log(self) -> Path:
        """File with the output of the node, across restarts."""
        return self.folder / "node.log"

    @property
    def pid(self) -> int:
        """Process id of the running node."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process; it keeps its data across restarts."""
        assert not self.is_running, f"{self.name} runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = Node.launcher(
                self.command_prefix,
                [self.module, "--lifeline"],
                {**os.environ, **self.environment},
                _lifeline(),
                log,
            )

    def wait(self, timeout_ms: int = STOP_TIMEOUT_MS) -> int:
        """Wait until the process has exited by itself; return its exit status.

        Raises:
            NodeFailed: the process did not exit in time.
        """
        assert self._process is not None, f"{self.name} was not started"
        try:
            return self._process.wait(timeout_ms / 1_000)
        except subprocess.TimeoutExpired:
            raise NodeFailed(f"{self.name} still runs after {timeout_ms} ms{self.tail()}") from None

    def kill(self) -> None:
        """Kill the process with SIGKILL, like a crash, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Suspend the process with SIGSTOP; its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process after ``pause``."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self, timeout_ms: int = STOP_TIMEOUT_MS) -> int:
        """Stop the process with SIGTERM; return its exit status.

        Raises:
            NodeFailed: the process did not exit in time and was killed.
        """
        assert self._process is not None, f"{self.name} was not started"
        self._process.terminate()
        try:
            return self._process.wait(timeout_ms / 1_000)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeFailed(f"{self.name} did not stop in {timeout_ms} ms{self.tail()}") from None

    def state(self) -> cluster_service_pb2.GetClusterStateResponse | None:
        """Return the node's view of the cluster; None if it does not answer."""
        if not self.is_running:
            return None
        if self._channel is None:
            self._channel = self.connect(self.address)
        stub = cluster_service_pb2_grpc.ClusterServiceStub(self._channel)
        request = cluster_service_pb2.GetClusterStateRequest()
        try:
            return stub.GetClusterState(request, timeout=ASK_TIMEOUT_MS / 1_000)
        except grpc.RpcError:
            return None

    def tail(self) -> str:
        """Return the last lines of the node's output, indented, for error messages."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "".join(f"\n    {line}" for line in text.splitlines()[-LOG_LINES_SHOWN:])

    def close(self) -> None:
        """Kill the process if it runs, and close the channel to it."""
        self.kill()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
