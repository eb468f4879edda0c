"""Move tasks that nobody settles: kick, bury and delete them by id, and release all of a tube."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.queue.commands import (
    Bury,
    CountResult,
    Delete,
    ItemRefusal,
    Kick,
    Outcome,
    Reason,
    Refusal,
    ReleaseAll,
)
from service.queue.endings import bury as bury_task
from service.queue.endings import end
from service.queue.instants import after, lengthened, postponed
from service.queue.life_cycle import BURIED, DELAYED, READY, TAKEN, EventKind
from service.queue.updating import unsuitable_update, update_task

if TYPE_CHECKING:
    from service.queue.ledger import Ledger
    from service.queue.task import Task


def no_task(task_id: int) -> Refusal:
    """Say that a task does not exist."""
    return Refusal(
        Reason.TASK_NOT_FOUND, "no such task, or not any more", {"task_id": str(task_id)}
    )


def wrong_state(task: Task) -> Refusal:
    """Say that a task's state does not allow the operation."""
    return Refusal(
        Reason.WRONG_STATE,
        f"task {task.id} is {task.state.name}",
        {"task_id": str(task.id), "state": task.state.name},
    )


def kick(ledger: Ledger, command: Kick) -> CountResult | Refusal:
    """Make buried tasks ready or delayed: the first so many by priority and id, or chosen ones."""
    tube = ledger.tube(command.tube)
    if isinstance(tube, Refusal):
        return tube
    if command.delay_ms > 0 and not tube.has_options:
        return Refusal(
            Reason.INVALID_FIELD,
            f"delay_ms means nothing in a tube of kind {tube.kind.name}",
            {"field": "delay_ms", "kind": tube.kind.name},
        )
    count = 0
    refused: list[ItemRefusal] = []
    if command.ids:
        for item, task_id in enumerate(command.ids):
            task = ledger.find(tube, task_id)
            if task is None:
                refused.append(ItemRefusal(item, no_task(task_id)))
            elif task.state is not BURIED:
                refused.append(ItemRefusal(item, wrong_state(task)))
            elif (refusal := _unsuitable(ledger, task, command)) is not None:
                refused.append(ItemRefusal(item, refusal))
            else:
                ledger.leave_order(task)
                _kick(ledger, task, command)
                count += 1
        return CountResult(count, refused)
    wanted = min(command.count, ledger.limits.kick_tasks_max)
    while count < wanted and (order := tube.buried.least()) is not None:
        task = ledger.find(tube, order[2])
        assert task is not None, f"tube {tube.number} has no buried task {order[2]}"
        assert task.state is BURIED
        if (refusal := _unsuitable(ledger, task, command)) is not None:
            return CountResult(count, [ItemRefusal(count, refusal)])
        tube.buried.pop_least()
        _kick(ledger, task, command)
        count += 1
    return CountResult(count)


def _unsuitable(ledger: Ledger, task: Task, command: Kick) -> Refusal | None:
    """Return why the changes of a kick are not for a task, or None."""
    if command.update is None:
        return None
    return unsuitable_update(ledger, task, command.update)


def _kick(ledger: Ledger, task: Task, command: Kick) -> None:
    delay_ms = command.delay_ms
    if command.update is not None:
        update_task(ledger, task, command.update)
    if delay_ms > 0:
        task.ttl_ms = lengthened(task.ttl_ms, delay_ms)
        task.expire_at_ms = postponed(task.expire_at_ms, delay_ms)
        task.visible_at_ms = after(ledger.now_ms, delay_ms)
    ledger.move(task, EventKind.KICK, DELAYED if delay_ms > 0 else READY)


def bury(ledger: Ledger, command: Bury) -> CountResult | Refusal:
    """Bury ready and delayed tasks. Buried ones stay as they are and are not counted."""
    tube = ledger.tube(command.tube)
    if isinstance(tube, Refusal):
        return tube
    count = 0
    refused: list[ItemRefusal] = []
    failure = command.failure
    for item, task_id in enumerate(command.ids):
        task = ledger.find(tube, task_id)
        if task is None:
            refused.append(ItemRefusal(item, no_task(task_id)))
        elif task.state in (READY, DELAYED):
            ledger.leave_order(task)
            reason = failure.type if failure is not None else ""
            bury_task(ledger, task, EventKind.BURY, failure, reason)
            count += 1
        elif task.state is not BURIED:
            refused.append(ItemRefusal(item, wrong_state(task)))
    return CountResult(count, refused)


def delete(ledger: Ledger, command: Delete) -> CountResult | Refusal:
    """Remove tasks in any state; the lease of a taken one becomes stale."""
    tube = ledger.tube(command.tube)
    if isinstance(tube, Refusal):
        return tube
    count = 0
    refused: list[ItemRefusal] = []
    for item, task_id in enumerate(command.ids):
        task = ledger.find(tube, task_id)
        if task is None:
            refused.append(ItemRefusal(item, no_task(task_id)))
            continue
        ledger.leave_order(task)
        end(ledger, task, EventKind.DELETE, Outcome.DELETED)
        count += 1
    return CountResult(count, refused)


def release_all(ledger: Ledger, command: ReleaseAll) -> CountResult | Refusal:
    """Release all taken tasks of a tube, in order of their takes."""
    tube = ledger.tube(command.name)
    if isinstance(tube, Refusal):
        return tube
    taken = [task for task in ledger.leases.values() if task.tube is tube]
    for task in taken:
        assert task.state is TAKEN
        ledger.move(task, EventKind.RELEASE_ALL, READY)
    return CountResult(len(taken))
