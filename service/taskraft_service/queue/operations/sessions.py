"""Open, keep, attach and close sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft_service.queue.entities.instants import NEVER_MS, after
from taskraft_service.queue.entities.quotas import share_refusal, total_refusal
from taskraft_service.queue.entities.refusal import CountResult, ItemRefusal, Refusal
from taskraft_service.queue.entities.session import Labels, QueueSession, SessionView
from taskraft_service.queue.operations.command_definition import (
    COUNT_ANSWER,
    CommandDefinition,
    Idempotent,
    ReadyPrediction,
    predict_nothing,
    replicated,
    shown_answer,
    tubes_of_session,
)
from taskraft_service.queue.operations.lease_returns import begin_return
from taskraft_service.queue.operations.settings import session_ttr_ms
from taskraft_service.queue.state.lease_returns import LeaseReturn
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.store.fields import Text
from taskraft_service.queue.values import value


@value
class OpenSession:
    """Open a session with an id that the leader generated.

    Answer: ``SessionResult``.
    """

    session_id: str
    name: str = ""
    ttr_ms: int = 15_000
    request_id: str = ""
    request_hash: int = 0
    as_settings: bool = False
    """``ttr_ms`` is a default that the replicated settings override."""
    owner: str = ""
    """Principal that opened the session; empty without authentication."""
    labels: Labels = ()


@value
class KeepSessions(Idempotent):
    """Extend sessions by their time to run from now.

    Answer: ``KeepResult``.
    """

    session_ids: Sequence[str]


@value
class AttachSession(Idempotent):
    """Set whether a session has open streams; without streams its time to run starts.

    Answer: ``KeepResult``, without the session if it ended at once because its time to run is 0.
    """

    session_id: str
    attached: bool


@value
class CloseSession:
    """Close a session and release its leases.

    Answer: ``CountResult``.
    """

    session_id: str
    uncounted: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class SessionResult:
    """The session as it is now."""

    session: SessionView


@value
class KeepResult:
    """The sessions that exist, and the refused ids by position."""

    sessions: Sequence[SessionView]
    refused: Sequence[ItemRefusal] = ()


def open_session(state: QueueState, command: OpenSession) -> SessionResult | Refusal:
    """Open a session; if the id is already open, return its session.

    A session with ``ttr_ms`` 0 ends with its last stream, so it starts attached. The time to run of
    other sessions starts at once.
    """
    session = state.sessions.get(command.session_id)
    if session is not None:
        return SessionResult(session.view())
    refusal = _refusal_to_open(state, command.owner)
    if refusal is not None:
        return refusal
    state.sessions.number += 1
    default_ttr_ms = max(command.ttr_ms, 0)
    ttr_ms = session_ttr_ms(state, default_ttr_ms) if command.as_settings else default_ttr_ms
    session = QueueSession(
        state.sessions.number, command.session_id, command.name, ttr_ms, state.now_ms
    )
    session.owner = command.owner
    session.labels = command.labels or None
    session.default_ttr_ms = default_ttr_ms if command.as_settings else None
    state.sessions.add(session)
    if ttr_ms > 0:
        session.attached = False
        session.expires_ms = after(state.now_ms, ttr_ms)
    state.set_session_timer(session)
    return SessionResult(session.view())


def _refusal_to_open(state: QueueState, owner: str) -> Refusal | None:
    """Return why a principal cannot open a further session, or None."""
    sessions, limits, advice = state.sessions, state.limits, "close unused sessions"
    if len(sessions) >= limits.sessions_max:
        return total_refusal("sessions_max", limits.sessions_max, "sessions", advice)
    most = limits.sessions_share_max
    if owner and sessions.count_of(owner) >= most:
        return share_refusal("sessions_share_max", most, "sessions", owner, advice)
    return None


def keep_sessions(state: QueueState, command: KeepSessions) -> KeepResult:
    """Extend sessions by their time to run from now; attached sessions do not expire."""
    kept: list[SessionView] = []
    refused: list[ItemRefusal] = []
    for item, session_id in enumerate(command.session_ids):
        session = state.sessions.find(session_id)
        if isinstance(session, Refusal):
            refused.append(ItemRefusal(item, session))
            continue
        if not session.attached:
            session.orphaned = False
            # Never shorten the grace period after a change of leader, which may exceed the time to
            # run.
            session.expires_ms = max(session.expires_ms, after(state.now_ms, session.ttr_ms))
            state.set_session_timer(session)
        kept.append(session.view())
    return KeepResult(kept, refused)


def attach_session(state: QueueState, command: AttachSession) -> KeepResult:
    """Stop or start the time to run of a session; a session with time to run 0 ends on detach."""
    session = state.sessions.find(command.session_id)
    if isinstance(session, Refusal):
        return KeepResult([], [ItemRefusal(0, session)])
    if command.attached:
        session.attached = True
        session.orphaned = False
        session.expires_ms = NEVER_MS
        state.set_session_timer(session)
    elif session.attached:
        session.attached = False
        session.expires_ms = after(state.now_ms, session.ttr_ms)
        if session.ttr_ms <= 0:
            end_session(state, session)
            return KeepResult([])
        state.set_session_timer(session)
    return KeepResult([session.view()])


def close_session(state: QueueState, command: CloseSession) -> CountResult | Refusal:
    """End a session on request of its client."""
    session = state.sessions.find(command.session_id)
    if isinstance(session, Refusal):
        return session
    session.orphaned = False
    return CountResult(end_session(state, session, uncounted=command.uncounted))


def end_session(state: QueueState, session: QueueSession, *, uncounted: bool = False) -> int:
    """End a session, and begin to release its leases in take order; return their number.

    From now on, no caller finds the session. Later entries release the leases for which this entry
    has no steps left.
    """
    held = len(session.held)
    state.watch.tell_session(session.id, uncounted=uncounted)
    state.timers.cancel(session)
    state.sessions.end(session)
    work = LeaseReturn(True, session.number, state.token, uncounted)  # noqa: FBT003 - a record
    begin_return(state, work)
    return held


def _predict_close(prediction: ReadyPrediction, command: CloseSession) -> None:
    prediction.add(tubes_of_session(prediction.state, command.session_id))


def _predict_attach(prediction: ReadyPrediction, command: AttachSession) -> None:
    """Add the tubes of a session that detaches, because it may end."""
    if not command.attached:
        prediction.add(tubes_of_session(prediction.state, command.session_id))


def _show(state: QueueState, session_id: str) -> SessionResult | Refusal:
    session = state.sessions.find(session_id)
    return session if isinstance(session, Refusal) else SessionResult(session.view())


DEFINITIONS: Final = (
    CommandDefinition(
        OpenSession,
        open_session,
        predict=predict_nothing,
        side=replicated,
        answer=shown_answer(7, _show, Text("session_id", of="session.session_id", to_end=True)),
    ),
    CommandDefinition(
        KeepSessions,
        keep_sessions,
        predict=predict_nothing,
        side=replicated,
        answer=None,
        items=lambda command: len(command.session_ids),
    ),
    CommandDefinition(
        AttachSession, attach_session, predict=_predict_attach, side=replicated, answer=None
    ),
    CommandDefinition(
        CloseSession, close_session, predict=_predict_close, side=replicated, answer=COUNT_ANSWER
    ),
)
