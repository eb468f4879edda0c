"""Check settlements and their capacity needs before any of them is applied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from taskraft_service.queue.entities.refusal import (
    Reason,
    Refusal,
    at_item,
    first_of,
    invalid,
    together,
)
from taskraft_service.queue.entities.retry_policy import Exhausted
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_limits import CapacityEstimate, refusal_of_fields
from taskraft_service.queue.operations.acknowledge import leaves_on_ack, refusal_of_ack, stale
from taskraft_service.queue.operations.releasing import is_last_attempt, policy_of
from taskraft_service.queue.operations.settlements import (
    SETTLEMENT_BRANCHES,
    Ack,
    BuryTaken,
    Reject,
    Release,
    Settle,
    Settlement,
    Touch,
)
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import refusal_of_target
from taskraft_service.queue.transitions.moving import dead_letters_of, refusal_to_receive
from taskraft_service.queue.transitions.updating import (
    growth,
    refusal_of_attributes,
    refusal_of_bytes,
    refusal_of_content,
)


def refusal_of_settle(state: QueueState, command: Settle) -> Refusal | None:
    """Return the first reason to refuse an atomic settle, with all invalid fields, or None.

    Each lease can be settled once. Later settlements can use the capacity that an earlier
    settlement frees.
    """
    ended: set[int] = set()
    room = CapacityEstimate()
    refusals: list[Refusal] = []
    for item, (path, settlement, token) in enumerate(leases_of(command)):
        task = state.leases.get(token)
        if task is None or token in ended:
            refusals.append(at_item(item, stale(token)))
            continue
        refusal = refusal_of_settlement(state, task, settlement)
        if refusal is None and not refusals:
            add_settlement(state, room, task, settlement)
            refusal = room.refusal()
        if refusal is not None:
            refusals.append(at_item(item, refusal, path))
        if not isinstance(settlement, Touch):
            ended.add(token)
    return first_of(refusals) if refusals else None


def leases_of(command: Settle) -> Iterator[tuple[str, Settlement, int]]:
    """Yield the path, the settlement and the token of each lease of a command."""
    for place, settlement in enumerate(command.settlements):
        path = f"settlements[{place}].{SETTLEMENT_BRANCHES[type(settlement)]}."
        for token in settlement.tokens:
            yield path, settlement, token


def refusal_of_settlement(
    state: QueueState, task: QueueTask, settlement: Settlement
) -> Refusal | None:
    """Return why a settlement does not suit its task, or None; the capacity is not checked."""
    tube = task.tube
    match settlement:
        case Ack():
            return refusal_of_ack(state, task, settlement)
        case Release():
            return _refusal_of_release(state, task, settlement)
        case BuryTaken(update=update):
            return refusal_of_attributes(tube, update) or refusal_of_content(state, task, update)
        case Touch():
            return _refusal_of_touch(tube)
        case Reject():
            return _refusal_to_give_up(state, task, Exhausted.DEAD_LETTER)
        case _:
            assert_never(settlement)


def _refusal_to_give_up(state: QueueState, task: QueueTask, exhausted: Exhausted) -> Refusal | None:
    """Return why the content of a task cannot go to the dead-letter tube, or None."""
    if exhausted is not Exhausted.DEAD_LETTER or not task.tube.options.dead_letter_tube:
        return None
    return refusal_of_bytes(state, task.payload_bytes)


def tube_after(state: QueueState, task: QueueTask, settlement: Release) -> QueueTube:
    """Return the tube of a task after its settlement; the options of this tube apply."""
    return state.tubes.get(settlement.move_to, task.tube)


def _refusal_of_release(state: QueueState, task: QueueTask, settlement: Release) -> Refusal | None:
    """Return why the release of a task is invalid, or None."""
    place, update = tube_after(state, task, settlement), settlement.update
    refusals = (_refusal_of_times(place, settlement), refusal_of_attributes(place, update))
    refusal = together([refusal for refusal in refusals if refusal is not None])
    if refusal is None and settlement.move_to:
        refusal = _refusal_of_destination(state, task, settlement)
    refusal = refusal or refusal_of_content(state, task, update, is_moved=bool(settlement.move_to))
    failure = settlement.failure
    if refusal is None and failure is not None and is_last_attempt(task, failure):
        return _refusal_to_give_up(state, task, policy_of(task).exhausted)
    return refusal


def _refusal_of_times(tube: QueueTube, settlement: Release) -> Refusal | None:
    """Return which times of a release the target tube does not support, or None."""
    if tube.rules.ignores_unsupported:
        return None
    return refusal_of_fields(
        tube, {"delay_ms": max(settlement.delay_ms or 0, 0) or None, "ttl_ms": settlement.ttl_ms}
    )


def _refusal_of_touch(tube: QueueTube) -> Refusal | None:
    """Return why leases of this tube cannot be extended, or None."""
    if tube.has_options or tube.rules.touches_untimed:
        return None
    return Refusal(
        Reason.KIND_UNSUITABLE,
        f"tubes of kind {tube.kind.name} have no time to run in the profile {tube.profile}",
        {"kind": tube.kind.name, "profile": tube.profile},
    )


def _refusal_of_destination(
    state: QueueState, task: QueueTask, settlement: Release
) -> Refusal | None:
    """Return why a task cannot be moved to a tube now, or None."""
    name = settlement.move_to
    target = state.tubes.find(name)
    if isinstance(target, Refusal):
        return target
    if target is task.tube:
        return invalid("move_to", "names the tube where the task is", {"tube": name})
    refusal = refusal_of_target(state, name, "move_to")
    return refusal or refusal_to_receive(state, target, task)


def add_settlement(
    state: QueueState, room: CapacityEstimate, task: QueueTask, settlement: Settlement
) -> None:
    """Add the capacity change of a valid settlement to the estimate.

    A task that is given up takes capacity of the dead-letter tube if this tube has capacity left.
    Otherwise the task is buried and takes none.
    """
    more = _growth(state, task, settlement)
    place = _place_after(state, room, task, settlement, more)
    if place is task.tube:
        room.add(place, 0, more)
        return
    room.add(task.tube, -1, -task.payload_bytes)
    if place is not None:
        room.add(place, 1, task.payload_bytes + more)


def _growth(state: QueueState, task: QueueTask, settlement: Settlement) -> int:
    if isinstance(settlement, (Touch, Reject)):
        return 0
    return growth(state, task, settlement.update)


def _place_after(
    state: QueueState, room: CapacityEstimate, task: QueueTask, settlement: Settlement, more: int
) -> QueueTube | None:
    """Return the tube in which the task will be, or None if it leaves the queue."""
    match settlement:
        case Touch() | BuryTaken():
            return task.tube
        case Ack():
            return None if leaves_on_ack(task.tube, settlement) else task.tube
        case Release() if task.extras.cancel_requested:
            return None
        case Release(move_to=name) if name:
            return state.tubes[name]
        case Release(uncounted=uncounted, failure=failure):
            if uncounted or failure is None or not is_last_attempt(task, failure):
                return task.tube
            return _place_given_up(state, room, task, policy_of(task).exhausted, more)
        case Reject():
            return _place_given_up(state, room, task, Exhausted.DEAD_LETTER, more)
        case _:
            assert_never(settlement)


def _place_given_up(
    state: QueueState, room: CapacityEstimate, task: QueueTask, exhausted: Exhausted, more: int
) -> QueueTube | None:
    """Return the tube in which a given-up task will be, or None if it leaves the queue."""
    match exhausted:
        case Exhausted.BURY:
            return task.tube
        case Exhausted.REMOVE:
            return None
        case Exhausted.DEAD_LETTER:
            target = dead_letters_of(state, task)
            payload_bytes = task.payload_bytes + more
            if target is None or room.refusal_of(target, 1, payload_bytes) is not None:
                return task.tube
            return target
        case _:
            assert_never(exhausted)


def refusal_of_capacity(
    state: QueueState, task: QueueTask, settlement: Settlement
) -> Refusal | None:
    """Return which tube lacks the capacity for one settlement, or None."""
    room = CapacityEstimate()
    add_settlement(state, room, task, settlement)
    return room.refusal()
