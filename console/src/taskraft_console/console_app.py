"""Assemble the web application: routes, live updates, changes and security."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from jinja2 import Environment, PackageLoader, StrictUndefined
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from taskraft import AsyncClient, TaskraftError, catalogue, errors
from taskraft_console.browser_guard import BrowserGuard
from taskraft_console.console_settings import ConsoleSettings
from taskraft_console.data.shared_reads import SharedReads
from taskraft_console.live_pages import (
    STREAMS_MAX,
    LiveContent,
    LivePage,
    LivePagesRefused,
    LiveStreams,
    live_pages_of,
)
from taskraft_console.pages.audit import audit
from taskraft_console.pages.bulk import bulk, start_search_sweep, stop_sweep
from taskraft_console.pages.cluster import change_cluster, cluster
from taskraft_console.pages.cluster_settings import change_cluster_settings, cluster_settings
from taskraft_console.pages.download import download
from taskraft_console.pages.failures import failures, start_failure_sweep
from taskraft_console.pages.history import history
from taskraft_console.pages.jump import jump
from taskraft_console.pages.outage import outage_of
from taskraft_console.pages.overview import overview
from taskraft_console.pages.page import (
    Change,
    FormRefused,
    PageHandler,
    PageView,
    PageVisit,
    SweepStart,
    shell_word,
    url_of,
)
from taskraft_console.pages.rights import rights
from taskraft_console.pages.schedule import change_one_schedule, schedule
from taskraft_console.pages.schedules import schedules
from taskraft_console.pages.session import session
from taskraft_console.pages.task import task
from taskraft_console.pages.task_changes import change_task
from taskraft_console.pages.tasks import tasks
from taskraft_console.pages.tube import change_tube, tube
from taskraft_console.pages.tubes import tubes
from taskraft_console.pages.workers import workers
from taskraft_console.pages.workflow import workflow
from taskraft_console.pages.workflows import change_group, workflows
from taskraft_console.signin.principal_access import PrincipalAccesses
from taskraft_console.signin.signin import SignIn
from taskraft_console.signin.signin_gate import SignInGate
from taskraft_console.signin.visitor import NotSignedIn, Visitor
from taskraft_console.static_files import StaticFiles
from taskraft_console.views import readable

if TYPE_CHECKING:
    from starlette.requests import Request

FORM_BYTES_MAX: Final = 64 * 1024
CONTENT_SECONDS: Final = 1.0
"""Maximum age of the content of a live page that several browsers share, in seconds."""
CONTENTS_MAX: Final = 32
"""Maximum number of kept contents of live pages."""
UNAVAILABLE_STATUS: Final = (503, 504)
"""HTTP statuses of pages for which the cluster did not answer."""
LIVE_STATUS: Final = (200, *UNAVAILABLE_STATUS)
"""HTTP statuses of pages with live updates: a page that was unavailable recovers by itself."""
HTTP_STATUS: Final[Mapping[str, int]] = {
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "FAILED_PRECONDITION": 409,
    "ABORTED": 409,
    "PERMISSION_DENIED": 403,
    "UNAUTHENTICATED": 401,
    "RESOURCE_EXHAUSTED": 503,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""HTTP status by gRPC status code; other codes are 502: the fault is behind the console."""


FileHandler = Callable[[PageVisit], Awaitable[Response]]
"""Returns data for a visit, such as a file."""


class ConsoleApp:
    """The web application of one console.

    Args:
        settings: the settings of the console.
    """

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings: Final = settings
        self._accesses = PrincipalAccesses(settings)
        self._static = StaticFiles(settings.base_path)
        self._templates = self._environment()
        self._signin = SignIn(settings, self._accesses, self._templates)
        self._stopping = asyncio.Event()
        self._streams = LiveStreams(self._stopping)
        self._contents = SharedReads(CONTENTS_MAX)
        self._pages: list[tuple[Route, PageHandler]] = []
        self.app: Final = self._build()

    # ------------------------------------------------------------------------------ assembly

    def _environment(self) -> Environment:
        """Return the templates, with automatic escaping of all values."""
        environment = Environment(
            loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        environment.filters.update(
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
        environment.globals.update(
            settings=self.settings,
            url=lambda *parts, **query: url_of(self.settings.base_path, *parts, **query),
            static=self._static.url,
        )
        return environment

    def _build(self) -> Starlette:
        routes = [
            self._static.route,
            Route("/livez", _say_ok),
            Route("/live", self._follow),
            Route("/go", self._jump),
            Route("/history", self._send(history)),
            Route("/tubes/{tube}/tasks/{task_id}/payload", self._send(download)),
            *self._signin.routes,
        ]
        for path, handler, change in (
            ("/", overview, None),
            ("/tubes", tubes, None),
            ("/tubes/{tube}", tube, change_tube),
            ("/tubes/{tube}/tasks/{task_id}", task, change_task),
            ("/tasks", tasks, None),
            ("/workers", workers, None),
            ("/workers/{session}", session, None),
            ("/workflows", workflows, None),
            ("/workflows/{group:path}", workflow, change_group),
            ("/schedules", schedules, None),
            ("/schedules/{schedule}", schedule, change_one_schedule),
            ("/cluster", cluster, change_cluster),
            ("/settings", cluster_settings, change_cluster_settings),
            ("/failures", failures, None),
            ("/audit", audit, None),
            ("/rights", rights, None),
            ("/bulk", bulk, None),
            ("/bulk/{number}", bulk, None),
        ):
            routes += self._page_routes(path, handler, change)
        routes += self._sweep_routes("/failures/{fingerprint}", failures, start_failure_sweep)
        routes += self._sweep_routes("/tasks", tasks, start_search_sweep)
        routes += self._sweep_routes("/bulk/{number}", bulk, stop_sweep)

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            # The first visitor does not wait for the first read of all tubes.
            first = asyncio.create_task(self._warm_up())
            yield
            first.cancel()
            self._stopping.set()
            await self._accesses.close()

        inner = Starlette(routes=routes, exception_handlers={404: self._show_missing})
        base = self.settings.base_path
        # Behind a proxy that strips the prefix, the same pages are at the root.
        outer = [Mount(base, app=inner)] if base else []
        return Starlette(
            routes=[*outer, Mount("/", app=inner)],
            lifespan=lifespan,
            middleware=[
                Middleware(BrowserGuard, settings=self.settings),
                Middleware(
                    SignInGate,
                    base_path=base,
                    visitors=self._signin.visitors,
                    pages=self._signin.pages,
                ),
            ],
        )

    def _page_routes(self, path: str, handler: PageHandler, change: Change | None) -> list[Route]:
        async def show(request: Request) -> Response:
            return await self._show(request, handler)

        route = Route(path, show)
        self._pages.append((route, handler))
        changes = [] if change is None else self._change_routes(path, handler, change)
        return [*changes, route]

    def _change_routes(self, path: str, handler: PageHandler, change: Change) -> list[Route]:
        async def post(request: Request) -> Response:
            return await self._change(request, handler, change)

        return [Route(f"{path}/do/{{action}}", post, methods=["POST"])]

    def _sweep_routes(self, path: str, handler: PageHandler, start: SweepStart) -> list[Route]:
        """Return the route of a form that starts or stops a sweep, and then shows the sweep."""

        async def post(request: Request) -> Response:
            async def begin(
                client: AsyncClient, parts: Mapping[str, str], action: str, form: Mapping[str, str]
            ) -> str:
                return await start(client, self._visit(request), parts, action, form)

            return await self._change(request, handler, begin, page="bulk")

        return [Route(f"{path}/do/{{action}}", post, methods=["POST"])]

    async def _warm_up(self) -> None:
        """Read all tubes, unless each visitor has credentials of their own."""
        if self.settings.signin is None:
            with suppress(TaskraftError):  # the pages show why the cluster does not answer
                await self._accesses.of(None).cluster.tubes()

    def stop(self) -> None:
        """End the live pages, so that the server can stop."""
        self._stopping.set()

    # -------------------------------------------------------------------------------- pages

    def _visit(
        self,
        request: Request,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> PageVisit:
        """Return the visit of the address of a request, or of another page by its visitor."""
        visitor: Visitor = request.state.visitor
        parts = request.path_params if path is None else path
        given = dict(request.query_params) if query is None else query
        return PageVisit(
            settings=self.settings,
            visitor=visitor,
            cluster=visitor.access.cluster,
            path={key: str(value) for key, value in parts.items()},
            query=given,
            notice=given.get("notice", ""),
        )

    async def _show(self, request: Request, handler: PageHandler) -> Response:
        """Return a page of the console with the answers of the cluster."""
        visit = self._visit(request)
        view = await self._view(visit, handler)
        return self._page(request, visit, view)

    def _page(self, request: Request, visit: PageVisit, view: PageView) -> HTMLResponse:
        path = quote(str(request.scope["path"]).removeprefix(self.settings.base_path))
        query = str(request.url.query)
        address = f"{path}?{query}" if query else path
        is_live = (
            request.method == "GET"
            and view.status in LIVE_STATUS
            and request.query_params.get("live") != "0"
        )
        html = self._templates.get_template("frame.html").render(
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

    async def _view(self, visit: PageVisit, handler: PageHandler) -> PageView:
        """Return the view of a page, or of the error that the cluster answers."""
        view = await self._answered(visit, handler)
        if visit.problem or view.status in UNAVAILABLE_STATUS:
            visit.outage = await outage_of(visit)
        return view

    async def _answered(self, visit: PageVisit, handler: PageHandler) -> PageView:
        try:
            return await handler(visit)
        except TaskraftError as error:
            row = catalogue.CATALOGUE.get(error.reason)
            if isinstance(error, errors.NoCredentials) and visit.visitor.session_id:
                return _signed_out("The cluster does not accept your token any more.")
            return PageView(
                template="error.html",
                title=error.reason,
                values={
                    "reason": error.reason,
                    "text": error.message,
                    "advice": error.advice or (row.advice if row else ""),
                },
                status=HTTP_STATUS.get(error.code, 502),
            )

    async def _follow(self, request: Request) -> Response:
        """Send the contents of the pages of one browser again and again."""
        if self._streams.count >= STREAMS_MAX:
            return PlainTextResponse("too many browsers have live pages\n", 503)
        try:
            pages = live_pages_of(request.query_params.getlist("page"), self._pages)
        except LivePagesRefused as refusal:
            return PlainTextResponse(f"{refusal}\n", 400)

        async def render(page: LivePage) -> LiveContent:
            visit = self._visit(request, page.path, page.query)
            try:
                # A page with live updates counts as use of the sign-in.
                self._signin.visitors.find(request)
            except NotSignedIn as reason:
                return LiveContent(self._content(visit, _signed_out(str(reason))), None)

            async def content() -> LiveContent:
                view = await self._view(visit, page.handler)
                return LiveContent(self._content(visit, view), view.refresh_seconds)

            # Browsers of one visitor share a content. The secret of forms names the visitor.
            shared = (visit.visitor.csrf, page.address)
            return (await self._contents.read(shared, CONTENT_SECONDS, content)).value

        return EventSourceResponse(self._streams.events(pages, render), ping=15)

    def _content(self, visit: PageVisit, view: PageView) -> str:
        """Return the part of a page that live updates replace."""
        return self._templates.get_template("live.html").render(
            view=view, visit=visit, csrf=visit.visitor.csrf, query=visit.query, **view.values
        )

    async def _show_missing(self, request: Request, _: Exception) -> Response:
        if not hasattr(request.state, "visitor"):
            return PlainTextResponse("There is no such page.\n", 404)
        values = {"reason": "PAGE_NOT_FOUND", "text": "There is no such page.", "advice": ""}
        view = PageView(template="error.html", title="Not found", values=values, status=404)
        return self._page(request, self._visit(request), view)

    # ------------------------------------------------------------------------------ changes

    async def _change(
        self, request: Request, handler: PageHandler, change: Change, page: str = ""
    ) -> Response:
        """Make a change, and show the page again with the result, or another page about it."""
        form = await request.form(max_fields=100, max_files=0, max_part_size=FORM_BYTES_MAX)
        given = {name: value for name, value in form.items() if isinstance(value, str)}
        visit = self._visit(request)
        visit.form = given
        action = str(request.path_params["action"])
        status = 200
        if self.settings.read_only:
            visit.failure, status = "This console is read-only.", 403
        elif not secrets.compare_digest(
            given.get("csrf", "").encode(), visit.visitor.csrf.encode()
        ):
            visit.failure = "The form is too old. Check the values and send the form again."
            status = 403
        else:
            try:
                notice = await self._changed(visit, change, action, given)
            except FormRefused as error:
                visit.failure, status = str(error), 400
            except (ValueError, TypeError) as error:
                if isinstance(error, TaskraftError):
                    raise
                visit.failure, status = str(error), 400
            except TaskraftError as error:
                row = catalogue.CATALOGUE.get(error.reason)
                visit.failure = f"{error.reason}: {error.message}"
                visit.failure_advice = error.advice or (row.advice if row else "")
                status = HTTP_STATUS.get(error.code, 502)
            else:
                if page:
                    parts = [page, notice] if notice else [page]
                    return RedirectResponse(url_of(self.settings.base_path, *parts), 303)
                return self._after_change(request, notice)
        view = await self._view(visit, handler)
        shown = PageView(
            template=view.template,
            title=view.title,
            values=view.values,
            status=max(status, view.status),
        )
        return self._page(request, visit, shown)

    async def _changed(
        self, visit: PageVisit, change: Change, action: str, given: Mapping[str, str]
    ) -> str:
        """Make a change as the visitor; a change that fails may have had an effect too."""
        try:
            async with self._accesses.acting(visit.visitor) as client:
                return await change(client, {**visit.path, "action": action}, action, given)
        finally:
            visit.cluster.forget()
            self._contents.forget()

    def _after_change(self, request: Request, notice: str) -> Response:
        """Redirect to the changed page, or to the list above if the page is gone."""
        path = request.url.path.removeprefix(self.settings.base_path)
        parts = path.split("/do/")[0].strip("/").split("/")
        action = request.path_params["action"]
        if parts[0] in ("schedules", "workflows") or action == "drop":
            parts = parts[:1]
        elif action in ("delete", "move") or (action == "cancel" and "removed" in notice):
            parts = parts[:2]
        target = [unquote(part) for part in parts]
        return RedirectResponse(url_of(self.settings.base_path, *target, notice=notice), 303)

    # ------------------------------------------------------------------------------- others

    async def _jump(self, request: Request) -> Response:
        visit = self._visit(request)
        try:
            target = await jump(visit)
        except TaskraftError:
            target = None
        if target is not None:
            return RedirectResponse(target, 303)
        text = f"Nothing is named {request.query_params.get('q', '')!r}."
        advice = "Enter a tube, a task as tube/id, a group, a schedule or the name of a session."
        values = {"reason": "NOT_FOUND", "text": text, "advice": advice}
        view = PageView(template="error.html", title="Not found", values=values, status=404)
        return self._page(request, visit, view)

    def _send(self, handler: FileHandler) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that sends data instead of a page."""

        async def send(request: Request) -> Response:
            try:
                return await handler(self._visit(request))
            except TaskraftError as error:
                text = f"{error.reason}: {error.message}"
                return PlainTextResponse(text, HTTP_STATUS.get(error.code, 502))

        return send


def _signed_out(text: str) -> PageView:
    """Return the view of a page whose visitor is not signed in any more."""
    values = {"reason": "NO_CREDENTIALS", "text": text, "advice": "Sign out, and sign in again."}
    return PageView(template="error.html", title="Signed out", values=values, status=401)


async def _say_ok(_: Request) -> Response:
    return PlainTextResponse("ok\n")
