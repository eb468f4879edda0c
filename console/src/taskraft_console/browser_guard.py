"""Protect the pages in a browser: security headers, the host name, and the origin of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from taskraft_console.console_settings import ConsoleSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
OPEN_TO_PROBES: Final = frozenset({"/livez", "/readyz"})
"""Paths that answer under each host name, because probes call the address of the container."""
LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


class BrowserGuard:
    """ASGI middleware that refuses requests of other sites and adds security headers.

    A page of another site can send requests to loopback, also under a name of its own that it
    points to 127.0.0.1 (DNS rebinding). So the Host header must name loopback, or the public
    address of the console. A change must come from a page of the same origin; its form has a secret
    in addition.
    """

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app = app
        self._is_loopback = settings.is_loopback
        self._public_url = settings.public_url
        self._public_host = urlsplit(settings.public_url).netloc

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answer.setdefault(name, value)
                answer.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope, headers)
        app = self._app if refusal is None else PlainTextResponse(refusal, 403)
        await app(scope, receive, send_guarded)

    def _knows(self, host: str) -> bool:
        """Return whether a Host header names this console."""
        if host and host == self._public_host:
            return True
        name = host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]
        return self._is_loopback and name in LOOPBACK_HOSTS

    def _refusal(self, scope: Scope, headers: Headers) -> str | None:
        """Return why the request is refused, or None."""
        host = headers.get("host", "")
        if not self._knows(host) and scope["path"] not in OPEN_TO_PROBES:
            own = self._public_host or "loopback"
            return f"this console answers only as {own}, not as {host!r}"
        if scope["method"] in ("GET", "HEAD"):
            return None
        site = headers.get("sec-fetch-site")
        if site is not None:
            return (
                None if site == "same-origin" else "a change must come from a page of the console"
            )
        origin = headers.get("origin", "")
        if host and origin in (f"http://{host}", f"https://{host}", self._public_url):
            return None
        return "a change must come from a page of the console"
