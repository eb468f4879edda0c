"""Start the nodes of tests by a fork of a process that has all imports done.

A start of a node then takes a tenth of the CPU time. A node with a program before it, another
interpreter setting or a preloaded library starts as a new process, and so do the nodes of
``taskraft serve`` and ``taskraft dev``. TASKRAFT_TEST_FORKS=0 starts every node as a new process.

Consecutive nodes come from different forkers, because the nodes of a cluster must have different
seeds of ``hash()``: a state that depends on the order of a set then differs between the nodes.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final

from tools.local_node import Node, NodeProcess, start_program

FORKERS: Final = 3
"""Number of forkers of a test process, the usual number of nodes of a cluster."""
FORKERS_MAX: Final = 4 * FORKERS
"""Maximum number of forkers of a test process, with all environments that its tests had."""
MODULES: Final = frozenset({"taskraft_service.process", "tests.failpoints"})
"""Modules whose imports a forker has done."""
READ_BY_NODES: Final = ("TASKRAFT_", "PYTEST_")
"""Prefixes of the variables that no import reads, so that a fork can get other values."""
SWITCH: Final = "TASKRAFT_TEST_FORKS"
STATUS_BYTES_MAX: Final = 16
PID_BYTES_MAX: Final = 16


class ForkedProcess:
    """A process that a forker has started, with the methods of a ``NodeProcess``."""

    def __init__(self, args: Sequence[str], pid: int, status: int) -> None:
        self.args = args
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()

    def _await(self, timeout_ms: int | None) -> int | None:
        with self._lock:
            if self.returncode is None:
                poll = select.poll()
                poll.register(self._status, select.POLLIN)
                if not poll.poll(timeout_ms):
                    return None
                text = os.read(self._status, STATUS_BYTES_MAX)
                os.close(self._status)
                assert text, "the forker ended before the node"
                self.returncode = int(text)
            return self.returncode

    def poll(self) -> int | None:
        """Return the exit status; None if the process runs."""
        return self._await(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended; return its exit status.

        Raises:
            subprocess.TimeoutExpired: the process runs after ``timeout`` seconds.
        """
        status = self._await(None if timeout is None else int(timeout * 1000))
        if status is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
        return status

    def terminate(self) -> None:
        """Send SIGTERM if the process runs."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL if the process runs."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class Forker:
    """A process with all imports done in the environment of its start, and the socket to it."""

    def __init__(self) -> None:
        self._connection, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.gate.node_forker", str(end.fileno())],
                cwd=Path(__file__).parent.parent.parent,
                stdin=subprocess.DEVNULL,
                pass_fds=(end.fileno(),),
                start_new_session=True,
            )

    def fork(
        self, command: Sequence[str], environment: Mapping[str, str], stdin: int, log: BinaryIO
    ) -> ForkedProcess:
        """Start a node: a module and its arguments."""
        module, *arguments = command
        request = {
            "module": module,
            "arguments": arguments,
            "environment": dict(environment),
            "folder": str(Path.cwd()),
        }
        reading, writing = os.pipe()
        try:
            descriptors = [stdin, log.fileno(), writing]
            socket.send_fds(self._connection, [json.dumps(request).encode()], descriptors)
        finally:
            os.close(writing)
        answer = self._connection.recv(PID_BYTES_MAX)
        assert answer, "the forker has ended"
        return ForkedProcess(command, int(answer), reading)

    def close(self) -> None:
        """End the forker."""
        self._connection.close()
        self._process.wait()


def other_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the interpreter and the imports may read."""
    return {name: text for name, text in environment.items() if not name.startswith(READ_BY_NODES)}


class ForkingLauncher:
    """Starts nodes by a fork where this is the same as a new process."""

    def __init__(self) -> None:
        self._forkers: dict[tuple[int, frozenset[tuple[str, str]]], Forker] = {}
        """The forkers by their place and their environment. A test may change the environment of
        the test process, and a forker stays while its nodes may run."""
        self._starts: Iterator[int] = count()
        self._lock = threading.Lock()

    def __call__(
        self,
        prefix: Sequence[str],
        command: Sequence[str],
        environment: Mapping[str, str],
        stdin: int,
        log: BinaryIO,
    ) -> NodeProcess:
        """Start a node; see ``tools.local_node.start_program`` for the arguments."""
        sys.audit("os.fork")  # the guard of stage 1 sees no process that a forker starts
        with self._lock:
            if not prefix and command[0] in MODULES:
                wanted = other_variables(environment)
                key = next(self._starts) % FORKERS, frozenset(wanted.items())
                forker = self._forkers.get(key)
                is_new = forker is None and len(self._forkers) < FORKERS_MAX
                if is_new and wanted == other_variables(os.environ):
                    forker = self._forkers[key] = Forker()
                if forker is not None:
                    return forker.fork(command, environment, stdin, log)
        return start_program(prefix, command, environment, stdin, log)

    def close(self) -> None:
        """End the forkers."""
        for forker in self._forkers.values():
            forker.close()
        self._forkers.clear()


LAUNCHER: Final = ForkingLauncher()


def pytest_configure() -> None:
    """Start nodes by forks. Coverage measures new processes only."""
    is_measured = any(name.startswith("COVERAGE_") for name in os.environ)
    has_pidfd = hasattr(os, "pidfd_open")
    if has_pidfd and not is_measured and os.environ.get(SWITCH) != "0":
        Node.launcher = LAUNCHER


def pytest_unconfigure() -> None:
    """End the forkers."""
    Node.launcher = start_program
    LAUNCHER.close()
