"""Acknowledge taken tasks: remove them, or keep them with their result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from taskraft_service.queue.entities.instants import FOREVER_MS, after, shown
from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.option_checks import is_period
from taskraft_service.queue.entities.refusal import ItemRefusal, Reason, Refusal, invalid
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.task_view import NO_EXTRAS
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.entities.tube_limits import CapacityEstimate
from taskraft_service.queue.entities.tube_options import OnAck
from taskraft_service.queue.operations.settlements import Ack, Keep
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.working_set import by_tube
from taskraft_service.queue.transitions.endings import end
from taskraft_service.queue.transitions.transition import transition
from taskraft_service.queue.transitions.updating import (
    growth,
    refusal_of_attributes,
    refusal_of_bytes,
    refusal_of_content,
    update_task,
)

PROCESSED: Final = TaskOutcome.PROCESSED
ACK: Final = Operation.ACK
_BY_WISH: Final[Mapping[Keep, Operation]] = {
    Keep.REMOVE: Operation.ACK,
    Keep.DONE: Operation.ACK_KEEP,
    Keep.ZOMBIE: Operation.ACK_RETAIN,
}
_BY_OPTION: Final[Mapping[OnAck, Operation]] = {
    OnAck.REMOVE: Operation.ACK,
    OnAck.KEEP: Operation.ACK_KEEP,
    OnAck.RETAIN: Operation.ACK_RETAIN,
}


def stale(token: int) -> Refusal:
    """Return the refusal of an invalid lease; a negative token is a lease of another principal."""
    return Refusal(
        Reason.LEASE_STALE,
        "the lease does not exist or has expired; take the task again",
        {"token": str(abs(token))},
    )


def refusal_of_ack(state: QueueState, task: QueueTask, settlement: Ack) -> Refusal | None:
    """Return why an acknowledgement conflicts with the options of the tube, or None."""
    tube = task.tube
    operation = _operation(tube, settlement)
    if operation is ACK:
        if settlement.retain_ms is None:
            return None
        text = "is supported only for a kept task; set keep, or on_ack of the tube"
        return invalid("retain_ms", text, {})
    if operation is Operation.ACK_RETAIN and not is_period(_retain_ms(tube, settlement)):
        given = settlement.retain_ms
        if given is None:
            return invalid("retain_ms", "missing; a ZOMBIE needs a retention period", {})
        text = f"{given} is not from 1 to {FOREVER_MS - 1}; a ZOMBIE needs a retention period"
        limits = {"value": str(given), "limit": f"1..{FOREVER_MS - 1}"}
        return invalid("retain_ms", text, limits)
    refusal = refusal_of_attributes(tube, settlement.update) or refusal_of_content(
        state, task, settlement.update
    )
    if refusal is None and settlement.result:
        refusal = refusal_of_bytes(state, len(settlement.result))
    return refusal


def leaves_on_ack(tube: QueueTube, settlement: Ack) -> bool:
    """Return whether an acknowledged task leaves its tube."""
    return _operation(tube, settlement) is ACK


def _operation(tube: QueueTube, settlement: Ack) -> Operation:
    """Return whether an acknowledgement removes, keeps or retains tasks of a tube."""
    if settlement.keep is Keep.AS_TUBE:
        return _BY_OPTION[tube.options.on_ack]
    return _BY_WISH[settlement.keep]


def _all_bare(tasks: Sequence[QueueTask]) -> bool:
    """Return whether no task has extras."""
    for task in tasks:  # noqa: SIM110 - faster than a generator
        if task.extras is not NO_EXTRAS:
            return False
    return True


def _retain_ms(tube: QueueTube, settlement: Ack) -> int:
    own = settlement.retain_ms
    return tube.options.retain_ms if own is None else own


def is_plain(settlement: Ack) -> bool:
    """Return whether an acknowledgement sets nothing but its tokens."""
    return (
        settlement.result is None
        and settlement.keep is Keep.AS_TUBE
        and settlement.retain_ms is None
        and settlement.update is None
    )


def _has_large_result(state: QueueState, settlement: Ack) -> bool:
    """Return whether the tasks of an acknowledgement would keep too large results together."""
    result_bytes = len(settlement.result or b"") * len(settlement.tokens)
    return result_bytes > state.limits.command_content_bytes_max


def acknowledge(
    state: QueueState, settlement: Ack, item: int, refused: list[ItemRefusal], *, is_checked: bool
) -> None:
    """Finish tasks; ``item`` is the position of the first token in the request.

    ``is_checked``: the settlement was checked before and cannot be refused.
    """
    overrides_tube = (
        settlement.keep is not Keep.AS_TUBE
        or settlement.retain_ms is not None
        or settlement.update is not None
        or (settlement.result is not None and _has_large_result(state, settlement))
    )
    refusal_of = (
        partial(_refusal, state, settlement, CapacityEstimate())
        if overrides_tube and not is_checked
        else None
    )
    leases, tokens = state.leases, settlement.tokens
    if refusal_of is None:
        # The usual case: each token is valid and occurs once. Takes half the time of the loop.
        found = [task for task in map(leases.get, tokens) if task is not None]
        if len(found) == len(tokens) == len(set(tokens)):
            _finish_all(state, found, settlement)
            return
    tasks: dict[int, QueueTask] = {}
    for place, token in enumerate(tokens, item):
        task = leases.get(token)
        if task is None or token in tasks:
            refused.append(ItemRefusal(place, stale(token)))
            continue
        if refusal_of is not None:
            refusal = refusal_of(task)
            if refusal is not None:
                refused.append(ItemRefusal(place, refusal))
                continue
        tasks[token] = task
    _finish_all(state, list(tasks.values()), settlement)


def acknowledge_each(
    state: QueueState, settlements: Sequence[Ack]
) -> Sequence[Sequence[ItemRefusal]]:
    """Execute plain acknowledgements together; return the refused items of each.

    If a task has extras, such as a group or dependents, its end has further effects. The function
    then executes nothing and returns an empty sequence.
    """
    leases = state.leases
    tasks: dict[int, QueueTask] = {}
    refused: list[Sequence[ItemRefusal]] = []
    for settlement in settlements:
        stale_items: list[ItemRefusal] = []
        for place, token in enumerate(settlement.tokens):
            task = leases.get(token)
            if task is None or token in tasks:
                stale_items.append(ItemRefusal(place, stale(token)))
            elif task.extras is not NO_EXTRAS:
                return ()
            else:
                tasks[token] = task
        refused.append(stale_items)
    _finish_all(state, list(tasks.values()), settlements[0])
    return refused


def _finish_all(state: QueueState, tasks: Sequence[QueueTask], settlement: Ack) -> None:
    """Acknowledge taken tasks; handle them together if their ends have no further effects."""
    for tube, run in by_tube(tasks) if tasks else ():
        operation = _operation(tube, settlement)
        is_plain_end = operation is ACK and tube.number not in state.watch.tubes
        if is_plain_end and _all_bare(run):
            transition(state, tube, run, ACK, outcome=PROCESSED)
        else:
            for task in run:
                _end(state, task, operation, settlement)


def _refusal(
    state: QueueState, settlement: Ack, room: CapacityEstimate, task: QueueTask
) -> Refusal | None:
    """Return why the acknowledgement of a task is invalid, or None."""
    refusal = refusal_of_ack(state, task, settlement)
    if refusal is not None or leaves_on_ack(task.tube, settlement):
        return refusal
    return room.claim(task.tube, growth(state, task, settlement.update))


def _end(state: QueueState, task: QueueTask, operation: Operation, settlement: Ack) -> None:
    """Acknowledge one task that is kept, or whose end has further effects."""
    retain_until_ms = 0
    if operation is not ACK:
        task.tube.counters.note(CountedOperation.DONE)
        retain_until_ms = shown(after(state.now_ms, _retain_ms(task.tube, settlement)))
        if settlement.update is not None:
            update_task(state, task, settlement.update)
    if operation is not ACK or settlement.result is not None:
        task.extras = replace(
            task.extras,
            failure=None,
            failures=(),
            result=settlement.result,
            result_content_type=settlement.result_content_type,
            retain_until_ms=retain_until_ms,
        )
    end(state, task, operation, PROCESSED)
