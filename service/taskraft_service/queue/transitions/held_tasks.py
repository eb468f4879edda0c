"""Let held tasks go when nothing holds them any more: neither their group nor a dependency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft_service.queue.entities.instants import NEVER_MS
from taskraft_service.queue.entities.life_cycle import HELD
from taskraft_service.queue.transitions.transition import transition

if TYPE_CHECKING:
    from taskraft_service.queue.entities.life_cycle import Operation
    from taskraft_service.queue.entities.task import QueueTask
    from taskraft_service.queue.state.queue_state import QueueState


def unhold_if_clear(
    ledger: QueueState, task: QueueTask, operation: Operation, delayed_operation: Operation
) -> None:
    """Make a held task ready, or delayed until its time, unless something else holds the task.

    ``operation`` makes the task ready, ``delayed_operation`` delays it.
    """
    assert task.state is HELD
    if task.extras.waiting is not None or ledger.groups.holds(task):
        return
    is_delayed = ledger.now_ms < task.visible_at_ms < NEVER_MS
    transition(ledger, task.tube, (task,), delayed_operation if is_delayed else operation)
    ledger.news.wake(task.tube)
