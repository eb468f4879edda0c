"""The page of workers: their sessions, and the tasks that each session holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from taskraft_console.pages.page import PageView, PageVisit

if TYPE_CHECKING:
    from taskraft.v1.session_service_pb2 import Session


@dataclass(frozen=True, slots=True)
class SessionLine:
    """One session."""

    session: Session
    short_id: str
    """First characters of the id; a full id is a secret."""
    expires_in_ms: int | None
    """Time until the session ends unless its client sends a heartbeat; None: a stream is open."""
    is_quiet: bool
    """True: the session holds nothing."""
    host: str
    """Host of the client, as its label says; empty: not told."""
    process: str
    """Process id of the client, as its label says; empty: not told."""


def session_line(session: Session, now_ms: int) -> SessionLine:
    """Return a session for a page at a time of the cluster."""
    return SessionLine(
        session,
        session.session_id[:8],
        max(session.expires_ms - now_ms, 0) if session.expires_ms else None,
        session.taken == 0,
        session.labels.get("host", ""),
        session.labels.get("pid", ""),
    )


async def workers(visit: PageVisit) -> PageView:
    """Show the sessions; sessions that end soon come first."""
    sessions = visit.value(await visit.cluster.sessions())
    total = visit.value(await visit.cluster.total())
    wanted = visit.query.get("q", "").lower()
    lines = [
        session_line(each, total.now_ms)
        for each in sessions
        if any(
            wanted in text.lower()
            for text in (each.name, each.session_id[:8], *each.labels.values())
        )
    ]
    lines.sort(key=lambda line: (line.expires_in_ms is None, -line.session.taken, line.short_id))
    return PageView(
        template="workers.html",
        title="Workers",
        values={
            "lines": lines,
            "count": len(sessions),
            "leases": sum(each.taken for each in sessions),
            "quiet": sum(each.taken == 0 for each in sessions),
            "waiting": total.total.waiting,
            "now_ms": total.now_ms,
            "q": visit.query.get("q", ""),
        },
        refresh_seconds=3.0,
    )
