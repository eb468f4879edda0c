"""Open, keep, attach, close and end sessions, and begin a leadership."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft_service.queue.commands.circulation import CountResult
from taskraft_service.queue.commands.leadership import NoteCalls, Startup, StartupResult
from taskraft_service.queue.commands.sessions import (
    AttachSession,
    CloseSession,
    KeepResult,
    KeepSessions,
    OpenSession,
    SessionResult,
)
from taskraft_service.queue.entities.instants import NEVER_MS, after
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.refusal import ItemRefusal, Reason, Refusal
from taskraft_service.queue.entities.session import QueueSession
from taskraft_service.queue.entities.session_view import SessionView
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.operations.releasing import come_back
from taskraft_service.queue.operations.retrying import SESSION_LOST, hand_back
from taskraft_service.queue.operations.settings import session_ttr_ms

if TYPE_CHECKING:
    from taskraft_service.queue.state.queue_state import QueueState


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


def note_calls(ledger: QueueState, command: NoteCalls) -> CountResult:
    """Count what the leader has seen since it last told; tubes that are gone count no more."""
    known = 0
    for one in command.tubes:
        tube = ledger.tubes.get(one.tube)
        if tube is not None:
            ledger.tubes.touch(tube)
            tube.counters.note(CountedOperation.TAKE_TIMEOUT, one.take_timeouts)
            tube.counters.note(CountedOperation.PEEK, one.peeks)
            tube.counters.note(CountedOperation.META, one.metas)
            known += 1
    return CountResult(known)


def startup(ledger: QueueState, command: Startup) -> StartupResult:
    """Begin a leadership: nobody is attached to the new leader, and everybody gets a full grace.

    Also sessions without any time to run get it: a change of leader is not the client's fault.
    Leases without session keep their time. The first Startup of a cluster begins the feed.
    """
    if not ledger.feed.partitions and command.feed_partitions > 0:
        ledger.feed.begin(command.feed_id, command.feed_partitions)
    ledger.tubes.totals.begin()
    configured_ms = ledger.settings.failover_grace_ms
    failover_grace_ms = command.failover_grace_ms if configured_ms is None else configured_ms
    for session in ledger.sessions.values():
        session.attached = False
        session.orphaned = True
        grace_ms = max(session.ttr_ms, failover_grace_ms)
        session.expires_ms = after(ledger.now_ms, grace_ms)
        ledger.set_session_timer(session)
    return StartupResult(0)
