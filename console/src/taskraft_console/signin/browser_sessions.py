"""Keep the sign-ins of browsers in the memory of the console, for a bounded time.

A restart of the console signs everyone out. The cookie of a browser holds only a random id.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

IDLE_SECONDS: Final = 3_600.0
"""Maximum time without a request of the browser; an open page with live updates counts as use."""
AGE_SECONDS: Final = 8 * 3_600.0
"""Maximum time after the sign-in."""
SESSIONS_MAX: Final = 1_000
"""Maximum number of sign-ins; the least recently used one ends first."""


@dataclass(slots=True, kw_only=True)
class BrowserSession:
    """The sign-in of one browser."""

    session_id: str
    """A secret, the value of the cookie."""
    person: str
    credential: str | Path
    """Token, or file with the token, of the principal."""
    began_at: float
    used_at: float


class BrowserSessions:
    """The sign-ins by their ids.

    Args:
        clock: returns a monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()

    def begin(self, person: str, credential: str | Path) -> BrowserSession:
        """Begin the sign-in of a browser."""
        now = self._clock()
        session = BrowserSession(
            session_id=secrets.token_urlsafe(32),
            person=person,
            credential=credential,
            began_at=now,
            used_at=now,
        )
        self._sessions[session.session_id] = session
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return session

    def find(self, session_id: str) -> BrowserSession | None:
        """Return a sign-in that has not ended, and note its use."""
        session = self._sessions.get(session_id)
        if session is None:
            return None
        now = self._clock()
        if now - session.used_at > IDLE_SECONDS or now - session.began_at > AGE_SECONDS:
            del self._sessions[session_id]
            return None
        session.used_at = now
        self._sessions.move_to_end(session_id)
        return session

    def end(self, session_id: str) -> None:
        """End a sign-in; unknown ids are ignored."""
        self._sessions.pop(session_id, None)
