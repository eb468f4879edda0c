"""The page of one session: the tasks that it holds, each with the rest of its lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft import errors
from taskraft_console.pages.page import RELOAD_SECONDS, ChangeForms, PageView, PageVisit, shell_word
from taskraft_console.pages.workers import session_line

if TYPE_CHECKING:
    from taskraft import Task

LEASES_SHOWN: Final = 200
"""Maximum number of tasks on the page."""
SHORT_ID_LENGTH: Final = 8
"""Number of characters of a session id that pages show."""
LOW_SHARE: Final = 3
"""A lease is shown as short if less than this part (one third) of the time to run is left."""


@dataclass(frozen=True, slots=True)
class LeaseLine:
    """One task that a session holds."""

    task: Task
    left_ms: int | None
    """Rest of the lease; None: the lease lasts as long as the session."""
    percent: int
    """Rest of the lease as a part of the time to run, 0 to 100."""
    is_short: bool
    """True: the lease ends soon unless the holder touches the task."""


def lease_line(task: Task, now_ms: int) -> LeaseLine:
    """Return a held task with the rest of its lease at a time of the cluster."""
    until_ms, ttr_ms = task.lease_until_ms, task.message.ttr_ms
    if not until_ms:
        return LeaseLine(task, None, 100, is_short=False)
    left_ms = max(until_ms - now_ms, 0)
    percent = min(100 * left_ms // ttr_ms, 100) if ttr_ms else 100
    return LeaseLine(task, left_ms, percent, is_short=bool(ttr_ms) and left_ms * LOW_SHARE < ttr_ms)


async def session(visit: PageVisit) -> PageView:
    """Show one session; its leases that end first come first.

    Raises:
        SessionNotFound: there is no such session, or the visitor may not see its tasks.
    """
    short_id = visit.path["session"]
    if len(short_id) != SHORT_ID_LENGTH:
        raise errors.SessionNotFound(f"there is no session with the id {short_id}…")
    found = visit.value(await visit.cluster.session(short_id))
    leases = visit.value(await visit.cluster.leases(short_id))
    consumers = visit.value(await visit.cluster.session_consumers(short_id))
    now_ms = visit.value(await visit.cluster.total()).now_ms
    lines = [lease_line(task, now_ms) for task in leases]
    lines.sort(key=lambda line: (line.left_ms is None, line.left_ms or 0))
    return PageView(
        template="session.html",
        title=found.name or short_id,
        values={
            "line": session_line(found, now_ms),
            "labels": sorted(found.labels.items()),
            "consumers": consumers,
            "leases": lines[:LEASES_SHOWN],
            "count": len(lines),
            "short": sum(line.is_short for line in lines),
            "now_ms": now_ms,
            "forms": ChangeForms(
                f"taskraft session show {shell_word(short_id)}",
                f"client.list_leases({short_id!r})",
            ),
        },
        reload_seconds=RELOAD_SECONDS,
    )
