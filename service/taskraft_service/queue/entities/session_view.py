"""A session as callers see it."""

from __future__ import annotations

from taskraft_service.queue.values import value


@value
class SessionView:
    """A session as callers see it; ``expires_ms`` 0: a stream of the session is open."""

    session_id: str
    name: str
    ttr_ms: int
    expires_ms: int
    taken: int
    created_ms: int
    owner: str = ""
