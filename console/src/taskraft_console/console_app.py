"""Assemble the web application: routes, live updates, changes and security."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from taskraft import TaskraftError
from taskraft_console.browser_guard import BrowserGuard
from taskraft_console.console_settings import ConsoleSettings
from taskraft_console.data.shared_reads import SharedReads
from taskraft_console.live_endpoint import LiveEndpoint
from taskraft_console.page_changes import PageChanges
from taskraft_console.page_templates import PageTemplates
from taskraft_console.page_views import not_found, status_of, view_of, visit_of
from taskraft_console.pages.audit import audit
from taskraft_console.pages.bulk import bulk, start_search_sweep, stop_sweep
from taskraft_console.pages.cluster import change_cluster, cluster
from taskraft_console.pages.cluster_settings import change_cluster_settings, cluster_settings
from taskraft_console.pages.download import download
from taskraft_console.pages.failures import failures, start_failure_sweep
from taskraft_console.pages.history import history
from taskraft_console.pages.jump import jump
from taskraft_console.pages.overview import overview
from taskraft_console.pages.page import PageHandler, PageVisit
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
from taskraft_console.static_files import StaticFiles

if TYPE_CHECKING:
    from starlette.requests import Request

CONTENTS_MAX: Final = 32
"""Maximum number of kept contents of live pages."""

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
        self._templates = PageTemplates(settings, self._static)
        self._signin = SignIn(settings, self._accesses, self._templates.environment)
        self._stopping = asyncio.Event()
        self._pages: list[tuple[Route, PageHandler]] = []
        contents = SharedReads(CONTENTS_MAX)
        self._changes = PageChanges(settings, self._accesses, self._templates, contents)
        self._live = LiveEndpoint(
            settings, self._pages, self._templates, contents, self._signin.visitors, self._stopping
        )
        self.app: Final = self._build()

    def _build(self) -> Starlette:
        routes = [
            self._static.route,
            Route("/livez", _say_ok),
            Route("/readyz", self._say_ready),
            self._live.route,
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
            if change is not None:
                routes.append(self._changes.route(path, handler, change))
            routes.append(self._page_route(path, handler))
        for path, handler, start in (
            ("/failures/{fingerprint}", failures, start_failure_sweep),
            ("/tasks", tasks, start_search_sweep),
            ("/bulk/{number}", bulk, stop_sweep),
        ):
            routes.append(self._changes.sweep_route(path, handler, start))

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            self._templates.compile()
            # Most first visitors come after the first read of all tubes.
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

    def _page_route(self, path: str, handler: PageHandler) -> Route:
        async def show(request: Request) -> Response:
            visit = visit_of(self.settings, request)
            view = await view_of(visit, handler)
            return self._templates.page(request, visit, view)

        route = Route(path, show)
        self._pages.append((route, handler))
        return route

    async def _warm_up(self) -> None:
        """Read all tubes, unless each visitor has credentials of their own."""
        if self.settings.signin is None:
            with suppress(TaskraftError):  # the pages show why the cluster does not answer
                await self._accesses.of(None).cluster.tubes()

    def stop(self) -> None:
        """End the live pages, so that the server can stop."""
        self._stopping.set()

    async def _say_ready(self, request: Request) -> Response:
        """Answer 200 if the cluster answers, else 503; strangers learn no more."""
        if await self._accesses.of(None).cluster.is_answering():
            return await _say_ok(request)
        return PlainTextResponse("no node answers\n", 503)

    async def _jump(self, request: Request) -> Response:
        visit = visit_of(self.settings, request)
        try:
            target = await jump(visit)
        except TaskraftError:
            target = None
        if target is not None:
            return RedirectResponse(target, 303)
        text = f"Nothing is named {request.query_params.get('q', '')!r}."
        advice = "Enter a tube, a task as tube/id, a group, a schedule or the name of a session."
        return self._templates.page(request, visit, not_found(text, advice))

    async def _show_missing(self, request: Request, _: Exception) -> Response:
        if not hasattr(request.state, "visitor"):
            return PlainTextResponse("There is no such page.\n", 404)
        view = not_found("There is no such page.")
        return self._templates.page(request, visit_of(self.settings, request), view)

    def _send(self, handler: FileHandler) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that sends data instead of a page."""

        async def send(request: Request) -> Response:
            try:
                return await handler(visit_of(self.settings, request))
            except TaskraftError as error:
                return PlainTextResponse(f"{error.reason}: {error.message}", status_of(error))

        return send


async def _say_ok(_: Request) -> Response:
    return PlainTextResponse("ok\n")
