"""Send the contents of open pages again and again: all pages of one browser in one stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from starlette.datastructures import QueryParams
from starlette.routing import Match

from taskraft_console.pages.page import PageHandler

if TYPE_CHECKING:
    from starlette.routing import Route

STREAMS_MAX: Final = 200
"""Maximum number of streams; the pages of further browsers do not update themselves."""
PAGES_MAX: Final = 16
"""Maximum number of pages in one stream; `live.js` has the same limit."""


class LivePagesRefused(ValueError):
    """A stream cannot send these pages."""


@dataclass(frozen=True, slots=True)
class LivePage:
    """A page that a stream sends."""

    address: str
    """Path below the base path, and query, as the browser wrote them."""
    handler: PageHandler
    path: Mapping[str, str]
    """Parts of the path, such as the name of the tube."""
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LiveContent:
    """The part of a page that live updates replace."""

    html: str
    refresh_seconds: float | None
    """Time until the page is read again, in seconds; None: the page does not change any more."""


def live_pages_of(
    addresses: Sequence[str], pages: Sequence[tuple[Route, PageHandler]]
) -> Sequence[LivePage]:
    """Return the pages with these addresses, each page once.

    Raises:
        LivePagesRefused: no page, too many pages, or an address that is no page.
    """
    wanted = list(dict.fromkeys(addresses))
    if not 1 <= len(wanted) <= PAGES_MAX:
        raise LivePagesRefused(f"a stream has 1 to {PAGES_MAX} pages, not {len(wanted)}")
    return [_live_page_of(address, pages) for address in wanted]


def _live_page_of(address: str, pages: Sequence[tuple[Route, PageHandler]]) -> LivePage:
    path, _, query = address.partition("?")
    scope = {"type": "http", "method": "GET", "path": unquote(path)}
    for route, handler in pages:
        match, found = route.matches(scope)
        if match is Match.FULL:
            parts = {key: str(value) for key, value in found["path_params"].items()}
            return LivePage(address, handler, parts, dict(QueryParams(query)))
    raise LivePagesRefused(f"there is no page {address!r}")


class LiveStreams:
    """The open streams of a console.

    Args:
        stopping: set when the console stops; all streams end then.
    """

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self.count: int = 0
        """Number of open streams."""

    async def events(
        self,
        pages: Sequence[LivePage],
        render: Callable[[LivePage], Awaitable[LiveContent]],
    ) -> AsyncIterator[dict[str, str]]:
        """Yield the content of each page at once, and again whenever the content has changed.

        Pages do not wait for each other. A page is rendered again only after the browser has
        received its last content, so that a slow browser gets fewer contents, and no old ones.
        """
        sent: dict[str, int] = {}
        rendering = {asyncio.create_task(self._content(render, page, 0)): page for page in pages}
        self.count += 1
        try:
            while rendering:
                done, _ = await asyncio.wait(rendering, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    page, content = rendering.pop(task), task.result()
                    if content is None:
                        return
                    digest = hash(content.html)
                    if sent.get(page.address) != digest:
                        yield {"data": json.dumps({"page": page.address, "html": content.html})}
                    sent[page.address] = digest
                    if content.refresh_seconds is not None:
                        again = self._content(render, page, content.refresh_seconds)
                        rendering[asyncio.create_task(again)] = page
        finally:
            self.count -= 1
            for task in rendering:
                task.cancel()

    async def _content(
        self,
        render: Callable[[LivePage], Awaitable[LiveContent]],
        page: LivePage,
        delay_seconds: float,
    ) -> LiveContent | None:
        """Return the content of a page after a delay; None: the console stops."""
        try:
            await asyncio.wait_for(self._stopping.wait(), delay_seconds)
        except TimeoutError:
            return await render(page)
        return None
