"""Answer a browser that asks for live updates of its pages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from taskraft_console.live_pages import (
    STREAMS_MAX,
    LiveContent,
    LivePage,
    LivePagesRefused,
    LiveStreams,
    live_pages_of,
)
from taskraft_console.page_views import signed_out, view_of, visit_of
from taskraft_console.signin.visitor import NotSignedIn

if TYPE_CHECKING:
    from starlette.requests import Request

    from taskraft_console.console_settings import ConsoleSettings
    from taskraft_console.data.shared_reads import SharedReads
    from taskraft_console.page_templates import PageTemplates
    from taskraft_console.pages.page import PageHandler
    from taskraft_console.signin.visitor import VisitorFinder

CONTENT_SECONDS: Final = 1.0
"""Maximum age of the content of a live page that several browsers share, in seconds."""
PING_SECONDS: Final = 15
"""Interval of the pings of a stream, in seconds. `live.js` opens a stream without a ping again."""


class LiveEndpoint:
    """The streams of live updates of one console.

    Args:
        settings: the settings of the console.
        pages: the pages that a stream can send.
        templates: the templates of the pages.
        contents: kept contents of live pages.
        visitors: finds the visitor of a request.
        stopping: set when the console stops; all streams end then.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        pages: Sequence[tuple[Route, PageHandler]],
        templates: PageTemplates,
        contents: SharedReads,
        visitors: VisitorFinder,
        stopping: asyncio.Event,
    ) -> None:
        self._settings = settings
        self._pages = pages
        self._templates = templates
        self._contents = contents
        self._visitors = visitors
        self._streams = LiveStreams(stopping)
        self.route: Final = Route("/live", self._follow)

    async def _follow(self, request: Request) -> Response:
        """Send the contents of the pages of one browser again and again."""
        if self._streams.count >= STREAMS_MAX:
            return PlainTextResponse("too many browsers have live pages\n", 503)
        try:
            pages = live_pages_of(request.query_params.getlist("page"), self._pages)
        except LivePagesRefused as refusal:
            return PlainTextResponse(f"{refusal}\n", 400)

        async def render(page: LivePage) -> LiveContent:
            return await self._content(request, page)

        return EventSourceResponse(
            self._streams.events(pages, render),
            ping=PING_SECONDS,
            ping_message_factory=lambda: ServerSentEvent(event="ping", data=""),
        )

    async def _content(self, request: Request, page: LivePage) -> LiveContent:
        """Return the content of a page for the visitor of a request."""
        visit = visit_of(self._settings, request, page.path, page.query)
        try:
            # A page with live updates counts as use of the sign-in.
            self._visitors.find(request)
        except NotSignedIn as reason:
            return LiveContent(self._templates.content(visit, signed_out(str(reason))), None)

        async def content() -> LiveContent:
            view = await view_of(visit, page.handler)
            return LiveContent(self._templates.content(visit, view), view.refresh_seconds)

        # Browsers of one visitor share a content. The secret of forms names the visitor.
        shared = (visit.visitor.csrf, page.address)
        return (await self._contents.read(shared, CONTENT_SECONDS, content)).value
