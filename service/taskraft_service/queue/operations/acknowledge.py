"""Acknowledge taken tasks: remove them, or keep them with their result."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from taskraft_service.queue.commands.settle import Ack, Keep
from taskraft_service.queue.entities.instants import FOREVER_MS, after, shown
from taskraft_service.queue.entities.refusal import ItemRefusal, Reason, Refusal
from taskraft_service.queue.entities.task_view import NO_EXTRAS, State, TaskOutcome
from taskraft_service.queue.feed.event import emit
from taskraft_service.queue.life_cycle import DONE, GONE, TAKEN, ZOMBIE, EventKind
from taskraft_service.queue.refusals import invalid, together
from taskraft_service.queue.tasks.endings import end
from taskraft_service.queue.tasks.updating import (
    growth,
    unsuitable_content,
    unsuitable_to_tube,
    update_task,
)
from taskraft_service.queue.tasks.working_set import by_tube
from taskraft_service.queue.tubes.counters import Call
from taskraft_service.queue.tubes.option_checks import is_period
from taskraft_service.queue.tubes.room import Room

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from taskraft_service.queue.ledger import Ledger
    from taskraft_service.queue.tasks.task import Task
    from taskraft_service.queue.tubes.tube import Tube

PROCESSED: Final = TaskOutcome.PROCESSED
ACK: Final = EventKind.ACK
_BY_WISH: Final[Mapping[Keep, State]] = {
    Keep.REMOVE: GONE,
    Keep.DONE: DONE,
    Keep.ZOMBIE: ZOMBIE,
}


def stale(token: int) -> Refusal:
    """Say that a lease is not valid; a negative token stands for one that is not the caller's."""
    return Refusal(
        Reason.LEASE_STALE, "the lease is not valid, or not any more", {"token": str(abs(token))}
    )


def unsuitable_ack(ledger: Ledger, task: Task, settlement: Ack) -> Refusal | None:
    """Return why an acknowledgement does not agree with what the tube does, or None."""
    tube = task.tube
    state = _state_after(tube, settlement)
    if state is GONE:
        wishes = {"retain_ms": settlement.retain_ms, "payload": settlement.update}
        text = "means nothing for a task that is not kept"
        return together(
            [invalid(field, text, {}) for field, wish in wishes.items() if wish is not None]
        )
    if state is ZOMBIE and not is_period(_retain_ms(tube, settlement)):
        given = settlement.retain_ms
        if given is None:
            return invalid("retain_ms", "missing; a ZOMBIE is kept for a period", {})
        text = f"{given} is not from 1 to {FOREVER_MS - 1}; a ZOMBIE is kept for a period"
        limits = {"value": str(given), "limit": f"1..{FOREVER_MS - 1}"}
        return invalid("retain_ms", text, limits)
    return unsuitable_to_tube(tube, settlement.update) or unsuitable_content(
        ledger, task, settlement.update
    )


def leaves_on_ack(tube: Tube, settlement: Ack) -> bool:
    """Tell whether an acknowledged task leaves its tube."""
    return _state_after(tube, settlement) is GONE


def _state_after(tube: Tube, settlement: Ack) -> State:
    if settlement.keep is Keep.AS_TUBE:
        return tube.state_after_ack
    return _BY_WISH[settlement.keep]


def _retain_ms(tube: Tube, settlement: Ack) -> int:
    own = settlement.retain_ms
    return tube.options.retain_ms if own is None else own


def is_plain(settlement: Ack) -> bool:
    """Tell whether an acknowledgement says nothing but which tasks are done."""
    return (
        settlement.result is None
        and settlement.keep is Keep.AS_TUBE
        and settlement.retain_ms is None
        and settlement.update is None
    )


def acknowledge(
    ledger: Ledger, settlement: Ack, item: int, refused: list[ItemRefusal], *, is_checked: bool
) -> None:
    """Finish tasks; ``item`` is the place of the first token in the request.

    ``is_checked``: it is known already that nothing stands in the way.
    """
    has_wishes = (
        settlement.keep is not Keep.AS_TUBE
        or settlement.retain_ms is not None
        or settlement.update is not None
    )
    refusal_of = (
        partial(_refusal, ledger, settlement, Room()) if has_wishes and not is_checked else None
    )
    leases = ledger.leases
    tasks: list[Task] = []
    is_bare = True
    for place, token in enumerate(settlement.tokens, item):
        task = leases.get(token)
        if task is None:
            refused.append(ItemRefusal(place, stale(token)))
            continue
        if refusal_of is not None:
            refusal = refusal_of(task)
            if refusal is not None:
                refused.append(ItemRefusal(place, refusal))
                continue
        del leases[token]
        tasks.append(task)
        if task.extras is not NO_EXTRAS:
            is_bare = False
    _finish_all(ledger, tasks, settlement, is_bare=is_bare)


def acknowledge_each(ledger: Ledger, settlements: Sequence[Ack]) -> Sequence[Sequence[ItemRefusal]]:
    """Do plain acknowledgements at once; return what is refused of each.

    Nothing: nothing was done, for more may follow from the end of one of the tasks.
    """
    leases = ledger.leases
    tokens = [token for settlement in settlements for token in settlement.tokens]
    tasks = [task for token in tokens if (task := leases.get(token)) is not None]
    for task in tasks:
        if task.extras is not NO_EXTRAS:
            return ()
    refused: list[Sequence[ItemRefusal]]
    if len(tasks) == len(tokens) == len(set(tokens)):  # as a rule: nothing is refused
        for token in tokens:
            del leases[token]
        refused = [()] * len(settlements)
    else:
        tasks, refused = _released(ledger, settlements)
    _finish_all(ledger, tasks, settlements[0], is_bare=True)
    return refused


def _released(
    ledger: Ledger, settlements: Sequence[Ack]
) -> tuple[list[Task], list[Sequence[ItemRefusal]]]:
    """End leases; return their tasks, and what is refused of each acknowledgement."""
    leases = ledger.leases
    tasks: list[Task] = []
    refused: list[Sequence[ItemRefusal]] = []
    for settlement in settlements:
        strange: Sequence[ItemRefusal] = ()
        for place, token in enumerate(settlement.tokens):
            task = leases.pop(token, None)
            if task is None:
                strange = [*strange, ItemRefusal(place, stale(token))]
            else:
                tasks.append(task)
        refused.append(strange)
    return tasks, refused


def _finish_all(ledger: Ledger, tasks: Sequence[Task], settlement: Ack, *, is_bare: bool) -> None:
    """Finish tasks that are not among the leases any more.

    ``is_bare``: none has rare attributes, so that nothing else follows from its end.
    """
    for tube, run in by_tube(tasks) if tasks else ():
        state = _state_after(tube, settlement)
        if is_bare and state is GONE and tube.number not in ledger.watch.tubes:
            _finish(ledger, tube, run)
        else:
            for task in run:
                _end(ledger, task, state, settlement)


def _refusal(ledger: Ledger, settlement: Ack, room: Room, task: Task) -> Refusal | None:
    """Return why a task cannot be acknowledged in this way, or None."""
    return unsuitable_ack(ledger, task, settlement) or room.claim(
        task.tube, growth(ledger, task, settlement.update)
    )


def _end(ledger: Ledger, task: Task, state: State, settlement: Ack) -> None:
    """Finish one task that is kept, or whose ending matters to others."""
    retain_until_ms = 0
    if state is not GONE:
        task.tube.counters.note(Call.DONE)
        retain_until_ms = shown(after(ledger.now_ms, _retain_ms(task.tube, settlement)))
        if settlement.update is not None:
            update_task(ledger, task, settlement.update)
    if state is not GONE or settlement.result is not None:
        task.extras = replace(
            task.extras,
            failure=None,
            result=settlement.result,
            result_content_type=settlement.result_content_type,
            retain_until_ms=retain_until_ms,
        )
    end(ledger, task, ACK, TaskOutcome.PROCESSED, state)


def _finish(ledger: Ledger, tube: Tube, run: Sequence[Task]) -> None:
    """Do what ``transitions.move`` does, at once for tasks of one tube: consumers' hot path."""
    emit(ledger, run, ACK, TAKEN, GONE, outcome=PROCESSED)
    tasks, ready = tube.tasks, tube.ready
    payload_bytes = resident_bytes = 0
    for task in run:
        payload_bytes += task.payload_bytes
        session = task.session
        if session is not None:
            del session.held[task.token]
            task.session = None
        if task.timer is not None:
            ledger.timers.cancel(task)
        task.state = GONE
        if task.body is not None:
            resident_bytes += len(task.body)
            task.body = None
        if task.written is None:
            del tasks[task.id]
        elif not task.dirty:
            task.dirty = True
            ledger.dirty_tasks.append(task)
    if ready.counts_leases:
        ready.free(run)
    ledger.resident_bytes -= resident_bytes
    if not tube.dirty:
        ledger.tubes.touch(tube)
    tube.counters.count(ACK, TAKEN, GONE, len(run), -payload_bytes)
