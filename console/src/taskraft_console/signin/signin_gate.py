"""Let only signed-in visitors through to the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from taskraft_console.pages.page import url_of
from taskraft_console.signin.visitor import NotSignedIn, VisitorFinder

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from taskraft_console.signin.signin_pages import SignInPages

OPEN_PAGES: Final = frozenset({"static", "livez", "readyz", "signin"})
"""First part of the paths that need no sign-in."""
NOTHING_CHANGED: Final = "Nothing was changed. Sign in, and send the form again."


class SignInGate:
    """ASGI middleware that finds the visitor of each request, or asks to sign in.

    Args:
        app: the application behind the gate.
        base_path: prefix of all paths.
        visitors: finds the visitor of a request.
        pages: the pages of sign-in; None: people do not sign in at this console.
    """

    def __init__(
        self, app: ASGIApp, base_path: str, visitors: VisitorFinder, pages: SignInPages | None
    ) -> None:
        self._app = app
        self._base_path = base_path
        self._visitors = visitors
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = str(scope["path"]).removeprefix(self._base_path)
        if path.strip("/").split("/")[0] not in OPEN_PAGES:
            request = Request(scope, receive)
            try:
                scope.setdefault("state", {})["visitor"] = self._visitors.find(request)
            except NotSignedIn as reason:
                await self._answer(request, path, reason)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _answer(self, request: Request, path: str, reason: NotSignedIn) -> Response:
        """Return the answer to a visitor without a valid sign-in."""
        if reason.is_refused or self._pages is None:
            return PlainTextResponse(f"{reason}\n", 403)
        if request.method not in ("GET", "HEAD"):
            return self._pages.page(request, f"{reason} {NOTHING_CHANGED}".strip(), 401)
        if request.headers.get("accept", "").startswith("text/event-stream"):
            return PlainTextResponse("Sign in first.\n", 401)
        query = request.url.query
        wanted = path + (f"?{query}" if query else "")
        why = "ended" if str(reason) else ""
        return RedirectResponse(url_of(self._base_path, "signin", next=wanted, why=why), 303)
