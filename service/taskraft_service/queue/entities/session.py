"""A session: a group of leases that expire together and can outlive a connection."""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.entities.instants import NEVER_MS, shown
from taskraft_service.queue.store.keys import SESSION_TIMER
from taskraft_service.queue.store.ordered_index import OrderKey
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


LABEL_CHARACTERS: Final = 8
"""Number of characters of a session id that events show; the full id is secret."""


class QueueSession:
    """A session.

    ``expires_ms`` is NEVER_MS while a stream is attached; ``held`` has the lease tokens.
    """

    __slots__ = (
        "attached",
        "created_ms",
        "default_ttr_ms",
        "dirty",
        "expires_ms",
        "held",
        "id",
        "label",
        "name",
        "number",
        "orphaned",
        "owner",
        "timer",
        "ttr_ms",
        "written",
    )

    def __init__(self, number: int, session_id: str, name: str, ttr_ms: int, now_ms: int) -> None:
        """Make a session without leases that does not expire."""
        self.number = number
        self.id = session_id
        self.name = name
        self.label = name or session_id[:LABEL_CHARACTERS]
        self.ttr_ms = ttr_ms
        self.created_ms = now_ms
        self.owner = ""
        """Principal that opened the session; empty without authentication."""
        self.attached = True
        self.orphaned = False
        """True if the leader changed and no call or stream has used the session since."""
        self.expires_ms = NEVER_MS
        self.default_ttr_ms: int | None = None
        """Default of ``ttr_ms`` without a replicated setting; None: ``ttr_ms`` was set."""
        self.held: dict[int, None] = {}
        """Lease tokens, the oldest first."""
        self.timer: OrderKey | None = None
        self.dirty = False
        self.written: bytes | None = None
        """Key of the session's timer in the store; empty: the session has no timer there.

        None: the session is not in the store.
        """

    def due(self) -> OrderKey | None:
        """Return the timer of the session, or None."""
        if self.expires_ms >= NEVER_MS:
            return None
        return (self.expires_ms, SESSION_TIMER, 0, self.number)

    def view(self) -> SessionView:
        """Return the session as callers see it."""
        return SessionView(
            self.id,
            self.name,
            self.ttr_ms,
            shown(self.expires_ms),
            len(self.held),
            self.created_ms,
            self.owner,
        )
