"""Keep unique keys unique: a key of a tube belongs to at most one task.

A new task takes the key over if the task that has the key does not conflict with the put, for
example because that task is finished and kept. The finished task stays without the key, and needs
the key back before it can be restarted.
"""

from __future__ import annotations

from typing import NamedTuple

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Refusal, key_taken
from taskraft_service.queue.entities.task_state import FINISHED
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.state.queue_state import QueueState


class Conflict(NamedTuple):
    """An item of a put whose unique key belongs to an existing task."""

    place: int
    task_id: int
    new: NewTask


def holder(state: QueueState, tube: QueueTube, key: tuple[str, ...]) -> QueueTask | None:
    """Return the task that has a key, or None; the task may be finished."""
    return state.find(tube, state.unique_keys.find(tube.number, key))


def reclaim(state: QueueState, task: QueueTask) -> Refusal | None:
    """Give a finished task its key back; return a refusal if an unfinished task has the key."""
    key = task.extras.unique_key
    if not key:
        return None
    other = holder(state, task.tube, key)
    if other is not None and other.id != task.id and other.state not in FINISHED:
        return key_taken(other.id)
    claim(state, task.tube, key, task.id)
    return None


def claim(state: QueueState, tube: QueueTube, key: tuple[str, ...], task_id: int) -> None:
    """Give a key to a task, and forget the failure of the last task that had the key."""
    state.unique_keys.claim(tube.number, key, task_id)
    state.failures.begin_anew(tube.number, key)
