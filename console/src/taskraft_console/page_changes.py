"""Make the changes that forms of pages ask for, and show their results."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from taskraft import AsyncClient, TaskraftError
from taskraft_console.page_templates import PageTemplates
from taskraft_console.page_views import advice_of, status_of, view_of, visit_of
from taskraft_console.pages.page import (
    Change,
    PageHandler,
    PageView,
    PageVisit,
    SweepStart,
    url_of,
)

if TYPE_CHECKING:
    from starlette.requests import Request

    from taskraft_console.console_settings import ConsoleSettings
    from taskraft_console.data.shared_reads import SharedReads
    from taskraft_console.signin.principal_access import PrincipalAccesses

FORM_BYTES_MAX: Final = 64 * 1024


class PageChanges:
    """Makes changes for the visitors of one console.

    Args:
        settings: the settings of the console.
        accesses: clients of the cluster with the credentials of the visitors.
        templates: the templates of the pages.
        contents: kept contents of live pages, which each change makes old.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        accesses: PrincipalAccesses,
        templates: PageTemplates,
        contents: SharedReads,
    ) -> None:
        self._settings = settings
        self._accesses = accesses
        self._templates = templates
        self._contents = contents

    def route(self, path: str, handler: PageHandler, change: Change) -> Route:
        """Return the route of the forms of a page."""

        async def post(request: Request) -> Response:
            return await self._change(request, handler, change)

        return Route(f"{path}/do/{{action}}", post, methods=["POST"])

    def sweep_route(self, path: str, handler: PageHandler, start: SweepStart) -> Route:
        """Return the route of a form that starts or stops a sweep, and then shows the sweep."""

        async def post(request: Request) -> Response:
            async def begin(
                client: AsyncClient, parts: Mapping[str, str], action: str, form: Mapping[str, str]
            ) -> str:
                return await start(client, visit_of(self._settings, request), parts, action, form)

            return await self._change(request, handler, begin, page="bulk")

        return Route(f"{path}/do/{{action}}", post, methods=["POST"])

    async def _change(
        self, request: Request, handler: PageHandler, change: Change, page: str = ""
    ) -> Response:
        """Make a change, and show the page again with the result, or another page about it."""
        form = await request.form(max_fields=100, max_files=0, max_part_size=FORM_BYTES_MAX)
        visit = visit_of(self._settings, request)
        visit.form = {name: value for name, value in form.items() if isinstance(value, str)}
        status = self._refused(visit)
        if status == 200:
            try:
                notice = await self._changed(visit, change, str(request.path_params["action"]))
            except TaskraftError as error:
                visit.failure = f"{error.reason}: {error.message}"
                visit.failure_advice = advice_of(error)
                status = status_of(error)
            except (ValueError, TypeError) as error:
                visit.failure, status = str(error), 400
            else:
                if page:
                    parts = [page, notice] if notice else [page]
                    return RedirectResponse(url_of(self._settings.base_path, *parts), 303)
                return self._after_change(request, notice)
        view = await view_of(visit, handler)
        shown = PageView(
            template=view.template,
            title=view.title,
            values=view.values,
            status=max(status, view.status),
        )
        return self._templates.page(request, visit, shown)

    def _refused(self, visit: PageVisit) -> int:
        """Return the HTTP status of a form that the console refuses, and note why; else 200."""
        if self._settings.read_only:
            visit.failure = "This console is read-only."
            return 403
        given = visit.form.get("csrf", "").encode()
        if not secrets.compare_digest(given, visit.visitor.csrf.encode()):
            visit.failure = "The form is too old. Check the values and send the form again."
            return 403
        return 200

    async def _changed(self, visit: PageVisit, change: Change, action: str) -> str:
        """Make a change as the visitor; a change that fails may have had an effect too."""
        try:
            async with self._accesses.acting(visit.visitor) as client:
                return await change(client, {**visit.path, "action": action}, action, visit.form)
        finally:
            visit.cluster.forget()
            self._contents.forget()

    def _after_change(self, request: Request, notice: str) -> Response:
        """Redirect to the changed page, or to the list above if the page is gone."""
        path = request.url.path.removeprefix(self._settings.base_path)
        parts = path.split("/do/")[0].strip("/").split("/")
        action = request.path_params["action"]
        if parts[0] in ("schedules", "workflows") or action == "drop":
            parts = parts[:1]
        elif action in ("delete", "move") or (action == "cancel" and "removed" in notice):
            parts = parts[:2]
        target = [unquote(part) for part in parts]
        return RedirectResponse(url_of(self._settings.base_path, *target, notice=notice), 303)
