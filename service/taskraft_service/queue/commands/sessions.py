"""Open, keep, attach and close sessions."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_service.queue.entities.idempotent import Idempotent
from taskraft_service.queue.entities.refusal import ItemRefusal
from taskraft_service.queue.entities.session_view import SessionView
from taskraft_service.queue.values import value


@value
class OpenSession:
    """Open a session under an id that the leader drew. Answer: ``SessionResult``."""

    session_id: str
    name: str = ""
    ttr_ms: int = 15_000
    request_id: str = ""
    request_hash: int = 0
    as_settings: bool = False
    """The time is a default, which the settings of the cluster outweigh."""
    owner: str = ""
    """Whose session it is: the principal that opens it; empty where nobody is told apart."""


@value
class KeepSessions(Idempotent):
    """Prolong sessions by their ttr from now. Answer: ``KeepResult``."""

    session_ids: Sequence[str]


@value
class AttachSession(Idempotent):
    """Say whether a session has streams; its ttr starts when it has none any more.

    Answer: ``KeepResult``, without the session where that ended it at once (no ttr).
    """

    session_id: str
    attached: bool


@value
class CloseSession:
    """Close a session and release what it holds. Answer: ``CountResult``."""

    session_id: str
    uncounted: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class SessionResult:
    """The session."""

    session: SessionView


@value
class KeepResult:
    """The sessions that live on, and the others by position."""

    sessions: Sequence[SessionView]
    refused: Sequence[ItemRefusal] = ()
