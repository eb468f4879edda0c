"""Run the console as a process: listen, print the address, and stop in order."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress
from typing import Final

import uvicorn

from taskraft_console.console_app import ConsoleApp
from taskraft_console.console_settings import ConsoleSettings

STOP_SECONDS: Final = 2


class ConsoleServer(uvicorn.Server):
    """A web server that prints its address once it listens."""

    def __init__(self, settings: ConsoleSettings, listener: socket.socket) -> None:
        self._console = ConsoleApp(settings)
        self._listener = listener
        config = uvicorn.Config(
            self._console.app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then print the address."""
        await super().startup(sockets)
        host, port = self._listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        base = self._console.settings.base_path
        print(f"console: http://{shown}:{port}{base}/", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the live pages, then stop."""
        self._console.stop()
        await super().shutdown(sockets)


def serve_console(settings: ConsoleSettings, *, has_lifeline: bool = False) -> int:
    """Serve until a signal arrives; return the exit status.

    Args:
        settings: the settings of the console.
        has_lifeline: True: also stop when standard input ends, because the parent process ended.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        print(f"cannot listen on {settings.host}:{settings.port}: {error}", file=sys.stderr)
        return 1

    async def run() -> None:
        server = ConsoleServer(settings, listener)
        watch = asyncio.create_task(_watch_parent(server)) if has_lifeline else None
        await server.serve([listener])
        if watch is not None:
            watch.cancel()

    with suppress(KeyboardInterrupt):  # uvicorn raises the signal again after it has stopped
        asyncio.run(run())
    return 0


async def _watch_parent(server: uvicorn.Server) -> None:
    """Stop the server at the end of standard input."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    await reader.read()
    server.should_exit = True
