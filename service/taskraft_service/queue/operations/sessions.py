"""Open, keep, attach, close and end sessions, and begin a leadership."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft_service.queue.entities.count_result import CountResult
from taskraft_service.queue.entities.instants import NEVER_MS, after
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.refusal import ItemRefusal, Reason, Refusal
from taskraft_service.queue.entities.session import QueueSession
from taskraft_service.queue.entities.session_view import SessionView
from taskraft_service.queue.operations.answer_codec import COUNT_ANSWER, named_answer
from taskraft_service.queue.operations.command_definition import (
    CommandDefinition,
    Idempotent,
    replicated,
)
from taskraft_service.queue.operations.ready_prediction import (
    ReadyPrediction,
    predict_nothing,
    tubes_of_session,
)
from taskraft_service.queue.operations.releasing import come_back
from taskraft_service.queue.operations.retrying import SESSION_LOST, hand_back
from taskraft_service.queue.operations.settings import session_ttr_ms
from taskraft_service.queue.state.queue_state import QueueState
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


def open_session(ledger: QueueState, command: OpenSession) -> SessionResult | Refusal:
    """Open a session; one that is open already is answered as it is.

    A session with ``ttr_ms`` 0 ends with its last stream, so it is opened by one: it begins
    attached. Others begin to count at once.
    """
    session = ledger.sessions.get(command.session_id)
    if session is not None:
        return SessionResult(session.view())
    if len(ledger.sessions) >= ledger.limits.sessions_max:
        return Refusal(
            Reason.LIMIT_REACHED,
            "there are as many sessions as there may be",
            {"limit": str(ledger.limits.sessions_max)},
        )
    ledger.sessions.number += 1
    default_ttr_ms = max(command.ttr_ms, 0)
    ttr_ms = session_ttr_ms(ledger, default_ttr_ms) if command.as_settings else default_ttr_ms
    session = QueueSession(
        ledger.sessions.number, command.session_id, command.name, ttr_ms, ledger.now_ms
    )
    session.owner = command.owner
    session.default_ttr_ms = default_ttr_ms if command.as_settings else None
    ledger.sessions.add(session)
    if ttr_ms > 0:
        session.attached = False
        session.expires_ms = after(ledger.now_ms, ttr_ms)
    ledger.set_session_timer(session)
    return SessionResult(session.view())


def keep_sessions(ledger: QueueState, command: KeepSessions) -> KeepResult:
    """Prolong sessions by their time to run from now; attached ones do not expire anyway."""
    kept: list[SessionView] = []
    refused: list[ItemRefusal] = []
    for item, session_id in enumerate(command.session_ids):
        session = ledger.sessions.find(session_id)
        if isinstance(session, Refusal):
            refused.append(ItemRefusal(item, session))
            continue
        if not session.attached:
            session.orphaned = False
            # A grace after a change of leader may be longer than the time to run: never shorten it.
            session.expires_ms = max(session.expires_ms, after(ledger.now_ms, session.ttr_ms))
            ledger.set_session_timer(session)
        kept.append(session.view())
    return KeepResult(kept, refused)


def attach_session(ledger: QueueState, command: AttachSession) -> KeepResult:
    """Stop a session's time, or start it; without any time to run it ends at once."""
    session = ledger.sessions.find(command.session_id)
    if isinstance(session, Refusal):
        return KeepResult([], [ItemRefusal(0, session)])
    if command.attached:
        session.attached = True
        session.orphaned = False
        session.expires_ms = NEVER_MS
        ledger.set_session_timer(session)
    elif session.attached:
        session.attached = False
        session.expires_ms = after(ledger.now_ms, session.ttr_ms)
        if session.ttr_ms <= 0:
            end_session(ledger, session)
            return KeepResult([])
        ledger.set_session_timer(session)
    return KeepResult([session.view()])


def close_session(ledger: QueueState, command: CloseSession) -> CountResult | Refusal:
    """End a session at the wish of its holder."""
    session = ledger.sessions.find(command.session_id)
    if isinstance(session, Refusal):
        return session
    session.orphaned = False
    return CountResult(end_session(ledger, session, uncounted=command.uncounted))


def end_session(ledger: QueueState, session: QueueSession, *, uncounted: bool = False) -> int:
    """Release what a session holds, in order of the takes, and forget it; return how many.

    One whose consumers have not come back to a new leader ends because of the change.
    """
    kind = EventKind.STARTUP_RELEASE if session.orphaned else EventKind.SESSION_RELEASE
    tasks = list(session.held.values())
    for task in tasks:
        ledger.news.wake(task.tube)
        if uncounted:
            come_back(ledger, task, kind)
            task.attempt -= 1
        else:
            hand_back(ledger, task, kind, SESSION_LOST)
    assert not session.held
    ledger.watch.tell_session(session.id, uncounted=uncounted)
    ledger.timers.cancel(session)
    ledger.sessions.remove(session)
    return len(tasks)


def _predict_close(prediction: ReadyPrediction, command: CloseSession) -> None:
    prediction.add(tubes_of_session(prediction.state, command.session_id))


def _predict_attach(prediction: ReadyPrediction, command: AttachSession) -> None:
    """Add the tubes of a session that detaches: without a time to run the session ends."""
    if not command.attached:
        prediction.add(tubes_of_session(prediction.state, command.session_id))


def _show(state: QueueState, session_id: str) -> SessionResult | Refusal:
    session = state.sessions.find(session_id)
    return session if isinstance(session, Refusal) else SessionResult(session.view())


def _id_of(answer: SessionResult) -> str:
    return answer.session.session_id


DEFINITIONS: Final = (
    CommandDefinition(
        OpenSession,
        open_session,
        predict=predict_nothing,
        side=replicated,
        answer=named_answer(7, _id_of, _show),
    ),
    CommandDefinition(
        KeepSessions, keep_sessions, predict=predict_nothing, side=replicated, answer=None
    ),
    CommandDefinition(
        AttachSession, attach_session, predict=_predict_attach, side=replicated, answer=None
    ),
    CommandDefinition(
        CloseSession, close_session, predict=_predict_close, side=replicated, answer=COUNT_ANSWER
    ),
)
