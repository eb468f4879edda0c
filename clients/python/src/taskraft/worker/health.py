"""Watch the event loop and the connection of a worker, and answer probes."""

from __future__ import annotations

import asyncio
import enum
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self, TypeAlias

log = logging.getLogger("taskraft.worker")

WATCH_SECONDS: Final = 0.25
"""Time between two checks of the event loop."""
BLOCKED_SECONDS: Final = 1.0
"""Time without a turn of the event loop after which the blocking handler is logged."""
LIVE_SECONDS_MAX: Final = 10.0
"""Time without a turn of the event loop after which the worker is not live."""
DISCONNECTED_SECONDS: Final = 15.0
"""Time without a stream to the cluster after which a worker counts as disconnected; the default
TTR of its session."""


PORT_MAX: Final = 65_535

Page: TypeAlias = tuple[int, str, bytes]
"""Status, media type and body of an answer."""
Pages: TypeAlias = dict[str, Callable[[], Page]]
"""Answers by path."""


class WorkerState(enum.Enum):
    """State of a worker between its start and its end."""

    STARTING = "starting"
    RUNNING = "running"
    DISCONNECTED = "disconnected"
    """The cluster cannot be reached; handlers go on, and the worker tries to reconnect."""
    DRAINING = "draining"
    STOPPED = "stopped"


class WorkerHealth:
    """The state of a worker; probes read it from other threads."""

    def __init__(
        self,
        name: str,
        is_connected: Callable[[], bool],
        can_run: Callable[[], bool],
    ) -> None:
        """Store the name of the app, and functions that tell what the worker can do.

        Args:
            name: name of the app.
            is_connected: tells whether all streams are open.
            can_run: tells whether the pools can run handlers.
        """
        self._name = name
        self._can_run = can_run
        self._is_connected = is_connected
        self._connected_at = time.monotonic()
        self._turned_at = time.monotonic()
        self._loop_thread = threading.get_ident()
        self.state = WorkerState.STARTING
        """State of the worker."""
        self.delay_seconds = 0.0
        """Duration of the last turn of the event loop, in seconds."""

    @property
    def is_live(self) -> bool:
        """True if the event loop has turned within the last 10 s."""
        return time.monotonic() - self._turned_at < LIVE_SECONDS_MAX

    @property
    def is_ready(self) -> bool:
        """True if the worker takes tasks."""
        return self.state is WorkerState.RUNNING and self._is_connected() and self._can_run()

    def enter(self, state: WorkerState) -> None:
        """Change the state, and log it."""
        self.state = state
        log.info("%s: %s", self._name, state.value)

    def turned(self, asked_at: float) -> None:
        """Record a turn of the event loop, and check the connection; runs on the event loop."""
        now = self._turned_at = time.monotonic()
        self.delay_seconds = now - asked_at
        if self._is_connected():
            self._connected_at = now
            if self.state is WorkerState.DISCONNECTED:
                log.warning("%s: the cluster is reachable again", self._name)
                self.enter(WorkerState.RUNNING)
        elif self.state is WorkerState.RUNNING and (
            now - self._connected_at >= DISCONNECTED_SECONDS
        ):
            log.warning(
                "%s: no connection to the cluster for %g s; handlers go on, and the worker tries "
                "again until it is stopped",
                self._name,
                now - self._connected_at,
            )
            self.enter(WorkerState.DISCONNECTED)

    def blocked_stack(self) -> str:
        """Return the stack of the thread of the event loop."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the documented way
        return "" if frame is None else "".join(traceback.format_stack(frame)).rstrip()


class LoopWatch:
    """Asks the event loop for a turn four times a second, and reports a handler that blocks it."""

    def __init__(self, health: WorkerHealth, loop: asyncio.AbstractEventLoop) -> None:
        self._health = health
        self._loop = loop
        self._ended = threading.Event()
        self._turned = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="taskraft-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._turned.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(WATCH_SECONDS):
            self._turned.clear()
            if self._ended.is_set():  # `__exit__` may have set both events before the clear
                return
            try:
                self._loop.call_soon_threadsafe(self._turn, time.monotonic())
            except RuntimeError:  # the loop was closed
                return
            if not self._turned.wait(BLOCKED_SECONDS):
                log.warning(
                    "a handler has blocked the event loop for %g s; use `await`, or a plain "
                    "function, which runs in a thread:\n%s",
                    BLOCKED_SECONDS,
                    self._health.blocked_stack(),
                )
                self._turned.wait()

    def _turn(self, asked_at: float) -> None:
        self._health.turned(asked_at)
        self._turned.set()


class ProbeServer:
    """Answers GET requests from a thread of its own, also while the event loop is blocked."""

    def __init__(self, address: tuple[str, int], pages: Pages) -> None:
        """Listen on host and port; port 0 chooses one."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path.partition("?")[0])
                status, kind, body = (404, "text/plain", b"not found\n") if page is None else page()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Do not log requests: probes come every few seconds."""

        self._server = ThreadingHTTPServer(address, Handler)
        self._server.daemon_threads = True
        self.port: Final = self._server.server_port
        """Port on which the server listens."""

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._server.serve_forever, name="taskraft-probes", daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def health_pages(health: WorkerHealth) -> Pages:
    """Return the pages for the probes of Kubernetes."""

    def probe(is_well: bool) -> Page:  # noqa: FBT001 - the one fact
        return (200 if is_well else 503), "text/plain", f"{health.state.value}\n".encode()

    return {"/livez": lambda: probe(health.is_live), "/readyz": lambda: probe(health.is_ready)}


def address_of(name: str, text: str) -> tuple[str, int]:
    """Return host and port of an address such as "127.0.0.1:7490"; without a host: all.

    Raises:
        ValueError: the text is not an address.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise ValueError(f"{name} must be an address such as 127.0.0.1:7490, not {text!r}")
    return host.strip("[]"), int(port)
