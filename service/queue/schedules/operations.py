"""Create, replace, remove and run schedules: one put per time, whoever leads.

The leader proposes the times that are due. A leader that is followed by another may have proposed
the same ones, so a schedule remembers up to where it is done, and a time up to there is never put
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.queue.commands import (
    CountResult,
    CreateSchedule,
    DeleteSchedule,
    Outcome,
    Overlap,
    Put,
    Reason,
    Refusal,
    RunSchedule,
    ScheduleResult,
    Slot,
    UpdateSchedule,
)
from service.queue.life_cycle import DELAYED, HELD, READY, TAKEN, EventKind
from service.queue.operations.put import put
from service.queue.operations.suitability import refusal_of_stored
from service.queue.schedules.schedule import Schedule
from service.queue.tasks.endings import end
from service.queue.tubes.temporary import refusal_of_target

if TYPE_CHECKING:
    from service.queue.commands import ScheduleOptions
    from service.queue.ledger import Ledger
    from service.queue.tasks.task import Task

_OPEN = (READY, DELAYED, TAKEN, HELD)
"""States of a task that has neither ended nor been buried."""


def create_schedule(ledger: Ledger, command: CreateSchedule) -> ScheduleResult | Refusal:
    """Create a schedule; its tube need not exist yet."""
    schedules = ledger.schedules
    if schedules.get(command.name) is not None:
        return Refusal(
            Reason.SCHEDULE_EXISTS,
            f"a schedule is called {command.name!r}",
            {"schedule": command.name},
        )
    if len(schedules) >= ledger.limits.schedules_max:
        return Refusal(
            Reason.LIMIT_REACHED,
            "there are as many schedules as there may be",
            {"limit": str(ledger.limits.schedules_max)},
        )
    refusal = _unsuitable(ledger, command.options)
    if refusal is not None:
        return refusal
    schedule = Schedule(command.name, command.options, ledger.now_ms, command.next_ms)
    schedules.set(schedule)
    return ScheduleResult(schedule.view())


def update_schedule(ledger: Ledger, command: UpdateSchedule) -> ScheduleResult | Refusal:
    """Replace a schedule: with another pattern it begins anew, after a pause it may catch up."""
    schedule = ledger.schedules.find(command.name)
    if isinstance(schedule, Refusal):
        return schedule
    refusal = _unsuitable(ledger, command.options)
    if refusal is not None:
        return refusal
    before, schedule.options = schedule.options, command.options
    schedule.version += 1
    if before.pattern != command.options.pattern:
        schedule.since_ms = schedule.done_ms = ledger.now_ms
        schedule.next_ms = command.next_ms
    elif before.paused and not command.options.paused:
        schedule.since_ms = ledger.now_ms
    ledger.schedules.set(schedule)
    return ScheduleResult(schedule.view())


def _unsuitable(ledger: Ledger, options: ScheduleOptions) -> Refusal | None:
    """Return why a schedule cannot put its task, as far as it is known already, or None."""
    refusal = refusal_of_target(ledger, options.tube, "schedule.tube")
    return refusal or refusal_of_stored(ledger, options.tube, options.spec, "schedule.spec")


def delete_schedule(ledger: Ledger, command: DeleteSchedule) -> CountResult | Refusal:
    """Remove a schedule; what it has put stays."""
    schedule = ledger.schedules.find(command.name)
    if isinstance(schedule, Refusal):
        return schedule
    ledger.schedules.remove(schedule)
    return CountResult(1)


def run_schedule(ledger: Ledger, command: RunSchedule) -> CountResult | Refusal:
    """Put the tasks of the slots that are not done; return how many were put.

    A plan that was made before the schedule was replaced, or that comes twice, does nothing.
    """
    schedule = ledger.schedules.find(command.name)
    if isinstance(schedule, Refusal):
        return schedule
    if schedule.version != command.version or command.until_ms <= schedule.done_ms:
        return CountResult(0)
    count = 0
    for slot in command.slots:
        if schedule.done_ms < slot.at_ms <= command.until_ms:
            schedule.done_ms = slot.at_ms
            count += _put(ledger, schedule, slot)
    schedule.done_ms = command.until_ms
    schedule.next_ms = command.next_ms
    ledger.schedules.set(schedule)
    return CountResult(count)


def _put(ledger: Ledger, schedule: Schedule, slot: Slot) -> bool:
    """Put the task of one slot; tell whether there is one now."""
    options = schedule.options
    before = _task_before(ledger, schedule)
    if before is not None and options.overlap is Overlap.SKIP:
        schedule.left_out += 1
        return False
    if before is not None and options.overlap is Overlap.CANCEL_BEFORE:
        ledger.leave_order(before)
        end(ledger, before, EventKind.DELETE, Outcome.DELETED)
    task = ledger.new_task(options.spec + slot.mark)
    result = put(ledger, Put(options.tube, [task], atomic=True))
    if isinstance(result, Refusal):
        schedule.left_out += 1
        schedule.refusal = result
        return False
    schedule.refusal = None
    schedule.last_ms = slot.at_ms
    schedule.last_put_ms = ledger.now_ms
    schedule.last_task_id = result.ids[0]
    schedule.last_tube = options.tube
    return True


def _task_before(ledger: Ledger, schedule: Schedule) -> Task | None:
    """Return the last task of a schedule if it has neither ended nor been buried.

    Ids begin anew with a tube that was dropped and created again, so its age is compared too.
    """
    tube = ledger.tubes.get(schedule.last_tube)
    if tube is None or not schedule.last_task_id:
        return None
    task = ledger.find(tube, schedule.last_task_id)
    if task is None or task.state not in _OPEN or task.created_ms != schedule.last_put_ms:
        return None
    return task
