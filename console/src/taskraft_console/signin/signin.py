"""Assemble the sign-in of a console from its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from taskraft_console.signin.browser_sessions import BrowserSessions
from taskraft_console.signin.principal_access import PrincipalAccesses
from taskraft_console.signin.signin_pages import SignInPages
from taskraft_console.signin.visitor import (
    FormSecrets,
    OpenVisitors,
    ProxyVisitors,
    SessionVisitors,
    VisitorFinder,
)

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.routing import Route

    from taskraft_console.console_settings import ConsoleSettings


class SignIn:
    """The sign-in of one console: finds visitors, and has pages if people sign in here."""

    def __init__(
        self, settings: ConsoleSettings, accesses: PrincipalAccesses, templates: Environment
    ) -> None:
        forms, signin = FormSecrets(), settings.signin
        pages: SignInPages | None = None
        visitors: VisitorFinder
        if signin is None:
            visitors = OpenVisitors(accesses, forms)
        elif signin.proxy is not None:
            visitors = ProxyVisitors(signin, signin.proxy, accesses, forms)
        else:
            sessions = BrowserSessions(lambda: asyncio.get_running_loop().time())
            visitors = SessionVisitors(settings, sessions, accesses, forms)
            pages = SignInPages(settings, signin, sessions, visitors, templates)
        self.visitors: Final = visitors
        self.pages: Final = pages

    @property
    def routes(self) -> Sequence[Route]:
        """The routes of the pages."""
        return () if self.pages is None else self.pages.routes()
