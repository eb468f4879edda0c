"""Keep unique keys unique: each key of a tube belongs to one task.

A new task takes a key over where the one that has it does not stand in its way: as a rule one that
is finished and kept. That one lives on without the key; to live again it needs the key back.
"""

from __future__ import annotations

from typing import NamedTuple

from taskraft_service.queue.entities.life_cycle import FINISHED
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.refusals import key_taken
from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.state.queue_state import QueueState


class Conflict(NamedTuple):
    """An item of a put whose key is in use, and the task that stands in for it."""

    place: int
    task_id: int
    new: NewTask


def holder(ledger: QueueState, tube: QueueTube, key: tuple[str, ...]) -> QueueTask | None:
    """Return the task that has a key, which may be finished; or None."""
    return ledger.find(tube, ledger.unique_keys.find(tube.number, key))


def reclaim(ledger: QueueState, task: QueueTask) -> Refusal | None:
    """Give a task that is to live again its key back; return who has it instead, if somebody."""
    key = task.extras.unique_key
    if not key:
        return None
    other = holder(ledger, task.tube, key)
    if other is not None and other.id != task.id and other.state not in FINISHED:
        return key_taken(other.id)
    claim(ledger, task.tube, key, task.id)
    return None


def claim(ledger: QueueState, tube: QueueTube, key: tuple[str, ...], task_id: int) -> None:
    """Give a key to a task; what the last one that had it failed of is not the new one's."""
    ledger.unique_keys.claim(tube.number, key, task_id)
    ledger.failures.begin_anew(tube.number, key)
