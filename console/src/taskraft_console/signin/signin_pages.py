"""The pages of sign-in and sign-out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from taskraft import AsyncClient, TaskraftError, errors
from taskraft_console.pages.page import url_of
from taskraft_console.signin.browser_sessions import BrowserSessions
from taskraft_console.signin.pending_signins import PendingSignIns
from taskraft_console.signin.visitor import NotSignedIn, SessionVisitors, credential_of

if TYPE_CHECKING:
    from pathlib import Path

    from jinja2 import Environment
    from starlette.requests import Request

    from taskraft_console.console_settings import ConsoleSettings
    from taskraft_console.signin.oidc_provider import OidcProvider
    from taskraft_console.signin.signin_settings import OidcSettings, SignInSettings

TOKEN: Final = re.compile(r"[\x21-\x7e]{8,512}")
FORM_BYTES_MAX: Final = 4 * 1024
PENDING_COOKIE: Final = "taskraft-signin"


class SignInPages:
    """Signs people in by token or by OpenID Connect."""

    def __init__(
        self,
        settings: ConsoleSettings,
        signin: SignInSettings,
        sessions: BrowserSessions,
        visitors: SessionVisitors,
        templates: Environment,
    ) -> None:
        self._settings = settings
        self._signin = signin
        self._sessions = sessions
        self._visitors = visitors
        self._templates = templates
        self._pending = PendingSignIns(lambda: asyncio.get_running_loop().time())
        callback = f"{signin.public_url}{settings.base_path}/signin/callback"
        self._oidc = None if signin.oidc is None else _provider_of(signin.oidc, callback)

    def routes(self) -> Sequence[Route]:
        """Return the routes of the pages."""
        begin = self._enter_token if self._oidc is None else self._ask_provider
        method = "POST" if self._oidc is None else "GET"
        return [
            Route("/signin", self._show),
            Route("/signin/begin", begin, methods=[method]),
            Route("/signin/callback", self._return),
            Route("/signin/out", self._sign_out, methods=["POST"]),
        ]

    async def _show(self, request: Request) -> Response:
        if request.query_params.get("why") == "ended":
            return self.page(request, "Your sign-in has ended. Sign in again.", 200)
        return self.page(request, "", 200)

    def page(self, request: Request, text: str, status: int) -> Response:
        """Return the page that asks to sign in, with a text about the previous attempt."""
        html = self._templates.get_template("signin.html").render(
            method=self._signin.method,
            text=text,
            next=_local_path(request.query_params.get("next", "/")),
            is_error=status != 200,
        )
        return HTMLResponse(html, status)

    async def _enter_token(self, request: Request) -> Response:
        """Sign in with a token, if the cluster accepts the token."""
        form = await request.form(max_fields=10, max_files=0, max_part_size=FORM_BYTES_MAX)
        token = str(form.get("token", "")).strip()
        if not TOKEN.fullmatch(token):
            return self.page(request, "This is not a token of the cluster.", 400)
        try:
            async with AsyncClient(
                self._settings.target, timeout=self._settings.timeout_seconds, token=token
            ) as client:
                caller = await client.caller()
        except errors.NoCredentials:
            return self.page(request, "The cluster does not know this token.", 403)
        except TaskraftError as error:
            return self.page(request, f"The cluster does not answer. {error}", 503)
        return self._enter(request, caller.principal or "token", token, str(form.get("next", "/")))

    async def _ask_provider(self, request: Request) -> Response:
        """Redirect to the OpenID provider."""
        assert self._oidc is not None
        pending_id, state = self._pending.begin()
        state["next"] = _local_path(request.query_params.get("next", "/"))
        try:
            answer = await self._oidc.redirect(request, state)
        except NotSignedIn as error:
            return self.page(request, str(error), 503)
        answer.set_cookie(
            PENDING_COOKIE,
            pending_id,
            path=self._visitors.path,
            secure=self._visitors.is_https,
            httponly=True,
            samesite="lax",
        )
        return answer

    async def _return(self, request: Request) -> Response:
        """Sign in the person whom the OpenID provider names."""
        state = self._pending.take(request.cookies.get(PENDING_COOKIE, ""))
        if self._oidc is None or state is None:
            return self.page(request, "The sign-in took too long. Sign in again.", 400)
        try:
            person, groups = await self._oidc.person(request, state)
            credential = credential_of(self._signin, person, groups)
        except NotSignedIn as error:
            return self.page(request, str(error), 403)
        answer = self._enter(request, person, credential, str(state["next"]))
        answer.delete_cookie(PENDING_COOKIE, path=self._visitors.path)
        return answer

    def _enter(
        self, request: Request, person: str, credential: str | Path, next_path: str
    ) -> Response:
        """Begin a new sign-in, end the earlier one of the browser, and go to the wanted page."""
        self._sessions.end(request.cookies.get(self._visitors.cookie, ""))
        session = self._sessions.begin(person, credential)
        answer = RedirectResponse(self._settings.base_path + _local_path(next_path), 303)
        self._visitors.remember(answer, session.session_id)
        return answer

    async def _sign_out(self, request: Request) -> Response:
        self._sessions.end(request.cookies.get(self._visitors.cookie, ""))
        answer = RedirectResponse(url_of(self._settings.base_path, "signin"), 303)
        self._visitors.remember(answer, "")
        return answer


def _provider_of(settings: OidcSettings, redirect_url: str) -> OidcProvider:
    """Return the OpenID provider; only then is Authlib loaded, which takes 20 MiB of memory."""
    from taskraft_console.signin.oidc_provider import OidcProvider  # noqa: PLC0415 - see above

    return OidcProvider(settings, redirect_url)


def _local_path(text: str) -> str:
    """Return a path of the console; "/" for an address of another site."""
    is_local = text.startswith("/") and not text.startswith("//") and "\\" not in text
    return text if is_local and text.isprintable() else "/"
