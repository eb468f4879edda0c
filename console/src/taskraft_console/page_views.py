"""Make the view of a page from the answers of the cluster, or from its error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from taskraft import TaskraftError, catalogue, errors
from taskraft_console.page_templates import UNAVAILABLE_STATUS
from taskraft_console.pages.outage import outage_of
from taskraft_console.pages.page import RELOAD_SECONDS, PageHandler, PageView, PageVisit

if TYPE_CHECKING:
    from starlette.requests import Request

    from taskraft_console.console_settings import ConsoleSettings
    from taskraft_console.signin.visitor import Visitor

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


def visit_of(
    settings: ConsoleSettings,
    request: Request,
    path: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
) -> PageVisit:
    """Return the visit of the address of a request, or of another page by its visitor."""
    visitor: Visitor = request.state.visitor
    parts = request.path_params if path is None else path
    given = dict(request.query_params) if query is None else query
    return PageVisit(
        settings=settings,
        visitor=visitor,
        cluster=visitor.access.cluster,
        path={key: str(value) for key, value in parts.items()},
        query=given,
        notice=given.get("notice", ""),
    )


async def view_of(visit: PageVisit, handler: PageHandler) -> PageView:
    """Return the view of a page, or of the error that the cluster answers."""
    view = await _answered(visit, handler)
    if visit.problem or view.status in UNAVAILABLE_STATUS:
        visit.outage = await outage_of(visit)
    return view


async def _answered(visit: PageVisit, handler: PageHandler) -> PageView:
    try:
        return await handler(visit)
    except TaskraftError as error:
        if isinstance(error, errors.NoCredentials) and visit.visitor.session_id:
            return signed_out("The cluster does not accept your token any more.")
        reason = error.reason if error.reason in catalogue.CATALOGUE else ""
        values = {"reason": reason, "text": error.message, "advice": advice_of(error)}
        return PageView(
            template="error.html",
            title=error.reason.replace("_", " ").capitalize(),
            values=values,
            status=status_of(error),
            reload_seconds=RELOAD_SECONDS,
        )


def status_of(error: TaskraftError) -> int:
    """Return the HTTP status of an error of the cluster."""
    return HTTP_STATUS.get(error.code, 502)


def advice_of(error: TaskraftError) -> str:
    """Return the advice for an error of the cluster; empty: there is no advice."""
    row = catalogue.CATALOGUE.get(error.reason)
    return error.advice or (row.advice if row else "")


def signed_out(text: str) -> PageView:
    """Return the view of a page whose visitor is not signed in any more."""
    values = {"reason": "NO_CREDENTIALS", "text": text, "advice": "Sign out, and sign in again."}
    return PageView(template="error.html", title="Signed out", values=values, status=401)


def not_found(text: str, advice: str = "") -> PageView:
    """Return the view of an address without a page, or of a name without an object."""
    values = {"reason": "", "text": text, "advice": advice}
    return PageView(template="error.html", title="Not found", values=values, status=404)
