"""Fill the templates of the pages: whole pages, and the parts that live updates replace."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from taskraft_console.pages.page import PageView, PageVisit, shell_word, url_of
from taskraft_console.views import readable

if TYPE_CHECKING:
    from starlette.requests import Request

    from taskraft_console.console_settings import ConsoleSettings
    from taskraft_console.static_files import StaticFiles

UNAVAILABLE_STATUS: Final = (503, 504)
"""HTTP statuses of pages for which the cluster did not answer."""
LIVE_STATUS: Final = (200, *UNAVAILABLE_STATUS)
"""HTTP statuses of pages with live updates: a page that was unavailable recovers by itself."""


class PageTemplates:
    """The templates of one console, with automatic escaping of all values.

    Args:
        settings: the settings of the console.
        static: the files that the pages name.
    """

    def __init__(self, settings: ConsoleSettings, static: StaticFiles) -> None:
        self._base_path = settings.base_path
        self.environment: Final = Environment(
            loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        self.environment.filters.update(
            count=readable.readable_count,
            rate=readable.readable_rate,
            duration=readable.readable_duration,
            bytes=readable.readable_bytes,
            time=readable.readable_time,
            iso=readable.iso_time,
            plain=readable.plain_text,
            python_text=repr,
            shell_word=shell_word,
        )
        self.environment.globals.update(
            settings=settings,
            live_status=LIVE_STATUS,
            url=lambda *parts, **query: url_of(settings.base_path, *parts, **query),
            static=static.url,
        )

    def compile(self) -> None:
        """Compile all templates, so that no visitor waits for it; takes about 0.3 s of CPU time."""
        for name in self.environment.list_templates(extensions=["html"]):
            self.environment.get_template(name)

    def page(self, request: Request, visit: PageVisit, view: PageView) -> HTMLResponse:
        """Return a whole page."""
        path = quote(str(request.scope["path"]).removeprefix(self._base_path))
        query = str(request.url.query)
        address = f"{path}?{query}" if query else path
        is_live = (
            request.method == "GET"
            and view.status in LIVE_STATUS
            and request.query_params.get("live") != "0"
        )
        html = self.environment.get_template("frame.html").render(
            view=view,
            visit=visit,
            csrf=visit.visitor.csrf,
            section=path.strip("/").split("/")[0],
            live_page=address if is_live else "",
            # Tabs share a stream only with tabs of the same visitor.
            live_group=hashlib.sha256(visit.visitor.csrf.encode()).hexdigest()[:16],
            query=visit.query,
            **view.values,
        )
        return HTMLResponse(html, view.status)

    def content(self, visit: PageVisit, view: PageView) -> str:
        """Return the part of a page that live updates replace."""
        return self.environment.get_template("live.html").render(
            view=view, visit=visit, csrf=visit.visitor.csrf, query=visit.query, **view.values
        )
