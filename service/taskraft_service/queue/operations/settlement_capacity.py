"""Compute the tube capacity that settlements will need, before any settlement is applied."""

from __future__ import annotations

from typing import assert_never

from taskraft_service.queue.entities.capacity_estimate import CapacityEstimate
from taskraft_service.queue.entities.retry_policy import Exhausted
from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.operations.acknowledge import leaves_on_ack
from taskraft_service.queue.operations.retrying import is_last_attempt, policy_of
from taskraft_service.queue.operations.settlements import (
    Ack,
    BuryTaken,
    Reject,
    Release,
    Settlement,
    Touch,
)
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.moving import dead_letters_of
from taskraft_service.queue.transitions.updating import growth


def add_settlement(
    ledger: QueueState, room: CapacityEstimate, task: QueueTask, settlement: Settlement
) -> None:
    """Add the capacity change of a valid settlement to the estimate.

    A task that is given up needs capacity in the dead-letter tube only if the estimate leaves some.
    Otherwise the task will be buried, as it is when the settlement is applied.
    """
    more = _growth(ledger, task, settlement)
    place = _place_after(ledger, room, task, settlement, more)
    if place is task.tube:
        room.add(place, 0, more)
        return
    room.add(task.tube, -1, -task.payload_bytes)
    if place is not None:
        room.add(place, 1, task.payload_bytes + more)


def _growth(ledger: QueueState, task: QueueTask, settlement: Settlement) -> int:
    if isinstance(settlement, (Touch, Reject)):
        return 0
    return growth(ledger, task, settlement.update)


def _place_after(
    ledger: QueueState, room: CapacityEstimate, task: QueueTask, settlement: Settlement, more: int
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
            return ledger.tubes[name]
        case Release(uncounted=uncounted, failure=failure):
            if uncounted or not is_last_attempt(task, failure):
                return task.tube
            return _place_given_up(ledger, room, task, policy_of(task).exhausted, more)
        case Reject():
            return _place_given_up(ledger, room, task, Exhausted.DEAD_LETTER, more)
        case _:
            assert_never(settlement)


def _place_given_up(
    ledger: QueueState, room: CapacityEstimate, task: QueueTask, exhausted: Exhausted, more: int
) -> QueueTube | None:
    """Return the tube in which a given-up task will be, or None if it leaves the queue."""
    match exhausted:
        case Exhausted.BURY:
            return task.tube
        case Exhausted.REMOVE:
            return None
        case Exhausted.DEAD_LETTER:
            target = dead_letters_of(ledger, task)
            payload_bytes = task.payload_bytes + more
            if target is None or room.refusal_of(target, 1, payload_bytes) is not None:
                return task.tube
            return target
        case _:
            assert_never(exhausted)
