"""Rules for leases and sessions: one holder at a time, and open sessions keep their tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.drill.history import Operation
from tests.drill.request import Request, requests_of
from tests.drill.task_history import ENDING, TaskHistories, TaskHistory, Violation

STALE = frozenset({"not_taken", "not_owner", "stale_token"})
"""Errors of a settlement which mean that the lease does not exist."""
GONE = frozenset({"not_found", "task_gone"})
EXPIRED = frozenset({"session_expired", "session_unknown"})


def double_holders(histories: TaskHistories) -> Iterator[Violation]:
    """G3: no other take gets a task while a lease on the task is certainly valid."""
    for task in histories.tasks.values():
        held_until_ns, holder = 0.0, None
        for delivery in task.deliveries:
            # Without tokens, only real time shows which take was the first.
            is_held = holder is not None and delivery.ended_ns < held_until_ns
            if is_held and (delivery.token or holder.ended_ns <= delivery.invoked_ns):
                text = f"{task.name}: {delivery.take.process} took it from {holder.take.process}"
                yield Violation("G3", "double-holder", text)
            until_ns = histories.held_until_ns(task, delivery)
            if until_ns > max(held_until_ns, delivery.ended_ns):
                held_until_ns, holder = until_ns, delivery
        for delivery in task.deliveries:
            if any(
                other.ended_ns < delivery.invoked_ns and other.token >= delivery.token > 0
                for other in task.deliveries
                if other is not delivery
            ):
                text = f"{task.name}: token {delivery.token} is not above those of earlier takes"
                yield Violation("G3", "token-order", text)
                break


def unowned_settlements(histories: TaskHistories) -> Iterator[Violation]:
    """G3: a settlement succeeds only while its lease is valid."""
    for task in histories.tasks.values():
        ended = [one for one in task.deletions if one.is_ok]
        for held in task.deliveries:
            later = [one for one in task.deliveries if one.token > held.token]
            endings = [one for one in held.ends() if one.is_ok]
            for one in held.settlements:
                if not one.is_ok:
                    continue
                if any(other.ended_ns < one.invoked_ns for other in later):
                    text = f"{task.name}: {one.f} with token {held.token} after a later take"
                    yield Violation("G3", "unowned-op", text)
                elif any(
                    other is not one and other.ended_ns < one.invoked_ns
                    for other in endings + ended
                ):
                    text = f"{task.name}: {one.f} with token {held.token} after the lease ended"
                    yield Violation("G3", "unowned-op", text)
        for one in task.strays:
            if one.is_ok:
                text = f"{task.name}: {one.f} succeeded with a token that no take returned"
                yield Violation("G3", "unowned-op", text)


def lost_holds(histories: TaskHistories) -> Iterator[Violation]:
    """G7: no settlement is refused while its lease is certainly valid."""
    for task in histories.tasks.values():
        for held in task.deliveries:
            for one in held.settlements:
                for attempt in one.attempts:
                    if attempt.outcome == "fail" and attempt.error in STALE | GONE:
                        until_ns = _held_without(histories, task, one, attempt)
                        if held.ended_ns < attempt.invoked_ns and attempt.ended_ns < until_ns:
                            text = f"{task.name}: {one.f} was refused with {attempt.error}"
                            yield Violation("G7", "hold-lost", text)


def _held_without(
    histories: TaskHistories, task: TaskHistory, one: Request, attempt: Operation
) -> float:
    """Return the time at which the lease of the settlement ``one`` certainly ended.

    Other attempts of the same request can have ended the lease too.
    """
    held = next(each for each in task.deliveries if one in each.settlements)
    until_ns = histories.held_until_ns(task, held)
    if one.f in ENDING:
        others = [each for each in one.attempts if each is not attempt and each.may_have_happened]
        until_ns = min([until_ns, *(each.invoked_ns for each in others)])
    return until_ns


def lost_sessions(histories: TaskHistories) -> Iterator[Violation]:
    """G7: a session is known until its end, and never after its end."""
    ended_ns: dict[str, float] = defaultdict(lambda: float("inf"))
    for one in histories.history.of("session_close"):
        if one.is_ok:
            session = one.value["session"]
            ended_ns[session] = min(ended_ns[session], one.ended_ns)
    closed = set(ended_ns)
    for one in histories.history.operations:
        session = one.value.get("session")
        if session is not None and one.outcome == "fail" and one.error in EXPIRED:
            if one.ended_ns < histories.session_ends_ns.get(session, 0):
                text = f"session {session[:8]} was lost: {one.f} was refused with {one.error}"
                yield Violation("G7", "session-lost", text)
            ended_ns[session] = min(ended_ns[session], one.ended_ns)
    for one in requests_of(histories.history.operations):
        session = one.value.get("session")
        if session is None or not one.is_ok or one.f in ENDING or one.f == "session_close":
            continue
        if one.invoked_ns > ended_ns[session]:
            code = "use-after-close" if session in closed else "session-resurrected"
            yield Violation("G7", code, f"{one.f} succeeded in session {session[:8]} after its end")
