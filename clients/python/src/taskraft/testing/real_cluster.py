"""Run a real node for tests that need processes, disks and ports: `taskraft dev`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import chain
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

PORT_MIN, PORT_MAX, PORT_STEP = 20_000, 32_000, 100
"""Ports that are tried, and the step from a port in use to the next port."""
PORTS: Final = (PORT_MAX - PORT_MIN) // PORT_STEP
OFFSETS: Final = (0, 1, 79)
"""Ports of a node, relative to its client port: clients, other nodes, HTTP."""
STOP_SECONDS: Final = 20.0
"""Maximum time for the node to stop before it is killed, in seconds."""


class RealCluster:
    """A node process on loopback with an empty data directory; a context manager."""

    def __init__(self) -> None:
        self._data = ""
        self._process: subprocess.Popen[str] | None = None
        self.target = ""
        """Address of the node, for `Client`."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._data = stack.enter_context(TemporaryDirectory(prefix="taskraft-"))
            self._port = free_port()
            self._start()
            self._undo = stack.pop_all()
        return self

    def _start(self) -> None:
        command = [sys.executable, "-m", "taskraft", "dev", "--data", self._data]
        command += ["--port", str(self._port)]
        # The output is read up to the line "ready"; the node prints little after it.
        self._process = subprocess.Popen(  # noqa: S603 - a fixed command
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        lines = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            lines.append(line)
            if line.startswith("ready"):
                self.target = f"127.0.0.1:{self._port}"
                return
        self._stop()
        raise RuntimeError(f"`taskraft dev` has not started: {''.join(lines)}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the node, and delete its data."""
        self._stop()
        self._undo.close()

    def restart(self, pause_seconds: float = 0) -> None:
        """Stop the node, and start it again after a pause, with its data."""
        self._stop()
        time.sleep(pause_seconds)
        self._start()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with process:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def free_port() -> int:
    """Return a client port whose other ports are free too."""
    own = PORT_MIN + os.getpid() % PORTS * PORT_STEP  # parallel tests choose different ports
    for port in chain(range(own, PORT_MAX, PORT_STEP), range(PORT_MIN, own, PORT_STEP)):
        with ExitStack() as opened:
            try:
                for offset in OFFSETS:
                    opened.enter_context(socket.create_server(("127.0.0.1", port + offset)))
            except OSError:
                continue
            return port
    raise RuntimeError("no free ports")
