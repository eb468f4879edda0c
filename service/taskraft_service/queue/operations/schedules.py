"""Create, replace, delete and run schedules: one put per scheduled time.

The leader proposes the times that are due. A new leader may propose the same times again. A
schedule therefore stores the time up to which tasks were put, and no task is put again for an
earlier time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft_service.queue.entities.ownership import (
    EVERYBODY,
    Ownership,
    ownership_of_later,
)
from taskraft_service.queue.entities.quotas import share_refusal, total_refusal
from taskraft_service.queue.entities.refusal import CountResult, Reason, Refusal
from taskraft_service.queue.entities.task_state import OPEN
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.operations.batch_checks import check_put
from taskraft_service.queue.operations.batch_draft import BatchDraft
from taskraft_service.queue.operations.command_definition import (
    COUNT_ANSWER,
    CommandDefinition,
    Idempotent,
    ReadyPrediction,
    predict_nothing,
    replicated,
    shown_answer,
)
from taskraft_service.queue.operations.kick_bury_delete import DELETING, Delete
from taskraft_service.queue.operations.put import Put, PutResult, put
from taskraft_service.queue.operations.put_plan import refusal_of_stored
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.task_change import apply_selected, check_selected
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.schedule_registry import (
    Overlap,
    ScheduledTime,
    ScheduleSpec,
    ScheduleView,
    TaskSchedule,
)
from taskraft_service.queue.state.temporary_tubes import refusal_of_target
from taskraft_service.queue.store.fields import Text
from taskraft_service.queue.values import value


@value
class CreateSchedule:
    """Create a schedule; ``next_ms`` is its first time, 0: none.

    Answer: ``ScheduleResult``.
    """

    name: str
    options: ScheduleSpec
    next_ms: int
    request_id: str = ""
    request_hash: int = 0
    owner: Ownership = EVERYBODY


@value
class UpdateSchedule:
    """Replace a schedule.

    Answer: ``ScheduleResult``.

    ``next_ms`` is used only if the pattern changes. The command is refused if ``etag`` is not
    empty and is not the tag of the definition in force.
    """

    name: str
    options: ScheduleSpec
    next_ms: int
    etag: str = ""
    request_id: str = ""
    request_hash: int = 0
    owner: Ownership = EVERYBODY


@value
class DeleteSchedule:
    """Remove a schedule; its tasks are kept.

    Answer: ``CountResult``.

    The command is refused if ``etag`` is not empty and is not the tag of the definition in force.
    """

    name: str
    etag: str = ""
    request_id: str = ""
    request_hash: int = 0
    owner: Ownership = EVERYBODY


@value
class RunSchedule(Idempotent):
    """Put one task for each scheduled time that is not handled yet.

    Answer: ``CountResult``.

    Args:
        name: name of the schedule.
        version: version for which the times were computed; the command is ignored if the schedule
            has another version.
        slots: scheduled times, in order.
        until_ms: time up to which the schedule is handled afterwards.
        next_ms: next scheduled time; 0: none.
    """

    name: str
    version: int
    slots: Sequence[ScheduledTime]
    until_ms: int
    next_ms: int


@value
class ScheduleResult:
    """The schedule as it is now."""

    schedule: ScheduleView


def create_schedule(state: QueueState, command: CreateSchedule) -> ScheduleResult | Refusal:
    """Create a schedule; its tube need not exist yet."""
    schedules = state.schedules
    if schedules.get(command.name) is not None:
        return Refusal(
            Reason.SCHEDULE_EXISTS,
            f"a schedule named {command.name!r} exists",
            {"schedule": command.name},
        )
    refusal = _refusal_to_add(state, command.owner.principal)
    refusal = refusal or _refusal_of_options(state, command.options)
    if refusal is not None:
        return refusal
    schedule = TaskSchedule(
        command.name, command.options, state.wall_ms, command.next_ms, command.owner.principal
    )
    schedules.set(schedule)
    return ScheduleResult(schedule.view())


def _refusal_to_add(state: QueueState, owner: str) -> Refusal | None:
    """Return why a principal cannot create a further schedule, or None."""
    schedules, limits, advice = state.schedules, state.limits, "delete unused schedules"
    if len(schedules) >= limits.schedules_max:
        return total_refusal("schedules_max", limits.schedules_max, "schedules", advice)
    most = limits.schedules_share_max
    if schedules.owned.of(owner) >= most:
        return share_refusal("schedules_share_max", most, "schedules", owner, advice)
    return None


def update_schedule(state: QueueState, command: UpdateSchedule) -> ScheduleResult | Refusal:
    """Replace a schedule.

    A new pattern applies from the time of the update. When a pause ends, ``catch_up`` decides about
    the times that were due during the pause.
    """
    schedule = _find_unchanged(state, command)
    if isinstance(schedule, Refusal):
        return schedule
    refusal = _refusal_of_options(state, command.options)
    if refusal is not None:
        return refusal
    before, schedule.options = schedule.options, command.options
    schedule.version += 1
    if before.pattern != command.options.pattern:
        schedule.since_ms = schedule.done_ms = state.wall_ms
        schedule.next_ms = command.next_ms
    elif before.paused and not command.options.paused:
        schedule.since_ms = state.wall_ms
    state.schedules.set(schedule)
    return ScheduleResult(schedule.view())


def _find_unchanged(
    state: QueueState, command: UpdateSchedule | DeleteSchedule
) -> TaskSchedule | Refusal:
    """Return the schedule of a command.

    Return a refusal if the schedule is missing, belongs to another principal, or has another tag.
    """
    name, etag = command.name, command.etag
    schedule = state.schedules.find(name)
    if isinstance(schedule, Refusal):
        return schedule
    refusal = command.owner.refusal_to_change(schedule.owner, f"schedule {name!r}")
    if refusal is not None:
        return refusal
    if not etag or etag == schedule.options.etag:
        return schedule
    text = f"the schedule {name!r} has changed since it was read; read it and repeat the change"
    return Refusal(Reason.SCHEDULE_CHANGED, text, {"schedule": name, "etag": schedule.options.etag})


def _refusal_of_options(state: QueueState, options: ScheduleSpec) -> Refusal | None:
    """Return why a schedule cannot put its task, or None; each put is checked again."""
    refusal = refusal_of_target(state, options.tube, "schedule.tube")
    return refusal or refusal_of_stored(state, options.tube, options.spec, "schedule.spec")


def delete_schedule(state: QueueState, command: DeleteSchedule) -> CountResult | Refusal:
    """Remove a schedule; its tasks are kept."""
    schedule = _find_unchanged(state, command)
    if isinstance(schedule, Refusal):
        return schedule
    state.schedules.remove(schedule)
    return CountResult(1)


def run_schedule(state: QueueState, command: RunSchedule) -> CountResult | Refusal:
    """Put the tasks of the times that are not handled yet; return their number.

    A plan for another version of the schedule, or a repeated plan, has no effect.
    """
    schedule = state.schedules.find(command.name)
    if isinstance(schedule, Refusal):
        return schedule
    if schedule.version != command.version or command.until_ms <= schedule.done_ms:
        return CountResult(0)
    count = 0
    for slot in command.slots:
        if schedule.done_ms < slot.at_ms <= command.until_ms:
            schedule.done_ms = slot.at_ms
            count += _put(state, schedule, slot)
    schedule.done_ms = command.until_ms
    schedule.next_ms = command.next_ms
    state.schedules.set(schedule)
    return CountResult(count)


def _put(state: QueueState, schedule: TaskSchedule, slot: ScheduledTime) -> bool:
    """Put the task of one scheduled time; return whether the task was put."""
    options = schedule.options
    before = _task_before(state, schedule)
    if before is not None and options.overlap is Overlap.SKIP:
        schedule.left_out += 1
        return False
    task = state.new_task(options.spec + slot.mark)
    owner = ownership_of_later(schedule.owner)
    addition = Put(options.tube, [task], atomic=True, owner=owner)
    if before is not None and options.overlap is Overlap.CANCEL_BEFORE:
        result = _put_instead(state, before, addition)
    else:
        result = put(state, addition)
    if isinstance(result, Refusal):
        schedule.left_out += 1
        schedule.refusal = result
        return False
    schedule.refusal = None
    schedule.last_ms = slot.at_ms
    schedule.last_task_id = result.ids[0]
    state.schedules.set_last(schedule, (state.tubes[options.tube].number, result.ids[0]))
    return True


def _put_instead(state: QueueState, before: QueueTask, addition: Put) -> PutResult | Refusal:
    """Replace a task, using its key and capacity; keep the old task if the put is refused."""
    removal = Delete(before.tube.name, ByIds([before.id]))
    draft = BatchDraft(state)
    refusal = (
        check_selected(DELETING, draft, removal)
        or check_put(draft, addition)
        or draft.room.refusal()
    )
    if refusal is not None:
        return refusal
    apply_selected(DELETING, draft, removal)
    return put(state, addition, is_admitted=True)


def _task_before(state: QueueState, schedule: TaskSchedule) -> QueueTask | None:
    """Return the last task of a schedule if it has neither ended nor been buried."""
    number, task_id = schedule.last
    tube = state.tubes.by_number.get(number)
    task = state.find(tube, task_id) if tube is not None else None
    return task if task is not None and task.state in OPEN else None


def _predict_run(prediction: ReadyPrediction, command: RunSchedule) -> None:
    """Add the tube of the schedule, and the tube of its last task, which may be cancelled."""
    state = prediction.state
    schedule = state.schedules.get(command.name)
    if schedule is not None:
        before = state.tubes.by_number.get(schedule.last[0])
        prediction.add(
            (schedule.options.tube,) if before is None else (schedule.options.tube, before.name)
        )


def _show(state: QueueState, name: str) -> ScheduleResult | Refusal:
    schedule = state.schedules.find(name)
    return schedule if isinstance(schedule, Refusal) else ScheduleResult(schedule.view())


_ANSWER: Final = shown_answer(8, _show, Text("name", of="schedule.name", to_end=True))
DEFINITIONS: Final = (
    CommandDefinition(
        CreateSchedule, create_schedule, predict=predict_nothing, side=replicated, answer=_ANSWER
    ),
    CommandDefinition(
        UpdateSchedule, update_schedule, predict=predict_nothing, side=replicated, answer=_ANSWER
    ),
    CommandDefinition(
        DeleteSchedule,
        delete_schedule,
        predict=predict_nothing,
        side=replicated,
        answer=COUNT_ANSWER,
    ),
    CommandDefinition(
        RunSchedule, run_schedule, predict=_predict_run, side=replicated, answer=None
    ),
)
