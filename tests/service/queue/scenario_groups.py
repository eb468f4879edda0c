"""Groups, batches and schedules in scenario files.

    group NAME end=mail/body abort=mail/body only      the tasks that it puts: tube and body
    set-end-task NAME end=mail/body abort=mail/body only
    start-group NAME
    cancel-group NAME revoke

    batch ack 1 | put mail body=x | delete mail ids=2      all or none
    schedule NAME tube=mail next=60 body=x overlap=skip paused pattern=daily
    reschedule NAME ...          the same words; replaces it
    unschedule NAME
    run NAME version=1 slots=60,120 until=120 next=180

The queries ``schedules`` and ``groups`` list all of them.
"""

from __future__ import annotations

from taskraft_service.queue.entities.group import GroupTask
from taskraft_service.queue.operations.groups import (
    CancelGroup,
    CreateGroup,
    GroupResult,
    SetEndTask,
    StartGroup,
)
from taskraft_service.queue.operations.schedules import (
    CreateSchedule,
    DeleteSchedule,
    RunSchedule,
    ScheduleResult,
    UpdateSchedule,
)
from taskraft_service.queue.state.schedule_registry import Overlap, ScheduledTime, ScheduleSpec

EPOCH_MS = 1_000_000
"""Time of the clock at the beginning; answers show times relative to this time."""
QUESTIONS = ("schedules", "groups")
FLAGS = ("paused", "only", "revoke")


def command(word, target, found):
    """Parse a command."""
    match word:
        case "group":
            tasks = [group_task(found.get(name)) for name in ("end", "abort")]
            return CreateGroup(target, *tasks, "only" in found)
        case "set-end-task":
            tasks = [group_task(found.get(name)) for name in ("end", "abort")]
            return SetEndTask(target, *tasks, "only" in found)
        case "start-group":
            return StartGroup(target)
        case "cancel-group":
            return CancelGroup(target, "revoke" in found)
        case "schedule":
            return CreateSchedule(target, schedule_options(found), at(found, "next"))
        case "reschedule":
            return UpdateSchedule(target, schedule_options(found), at(found, "next"))
        case "unschedule":
            return DeleteSchedule(target)
        case "run":
            slots = found.get("slots", "")
            return RunSchedule(
                target,
                int(found["version"]),
                [ScheduledTime(int(slot) + EPOCH_MS) for slot in slots.split(",") if slot],
                at(found, "until"),
                at(found, "next"),
            )
        case _:
            raise AssertionError(word)


def group_task(text):
    if text is None:
        return None
    tube, body = text.split("/")
    return GroupTask(tube, body.encode())


def schedule_options(found):
    return ScheduleSpec(
        found["tube"],
        found.get("pattern", "always"),
        Overlap[found.get("overlap", "allow").upper()],
        "paused" in found,
        found.get("body", "x").encode(),
    )


def at(found, name):
    return int(found[name]) + EPOCH_MS if name in found else 0


def instant(at_ms):
    return f"+{at_ms - EPOCH_MS}" if at_ms else "never"


def ask(queue, word, _rest):
    """Answer a query."""
    if word == "groups":
        return [group(view) for view in queue.groups()] or ["none"]
    assert word == "schedules", word
    return [schedule(view) for view in queue.schedules()] or ["none"]


def group(view):
    parts = [f"{view.name} {view.state.name}"]
    counts = ("open", "processed", "failed", "cancelled")
    parts += [f"{name} {getattr(view, name)}" for name in counts if getattr(view, name)]
    parts += [f"ended {instant(view.ended_ms)}"] if view.ended_ms else []
    parts += [f"put {view.last_task_id}"] if view.last_task_id else []
    parts += [view.refusal.reason.name] if view.refusal else []
    return ", ".join(parts)


def schedule(view):
    parts = [
        f"{view.name} version {view.version}",
        f"done {instant(view.done_ms)}",
        f"next {instant(view.next_ms)}",
    ]
    if view.last_task_id:
        parts.append(f"last {view.options.tube}/{view.last_task_id} for {instant(view.last_ms)}")
    parts += [f"left out {view.left_out}"] if view.left_out else []
    parts += [view.refusal.reason.name] if view.refusal else []
    parts += ["paused"] if view.options.paused else []
    return ", ".join(parts)


def answer_to(result):
    """Return the answer to a command as lines."""
    match result:
        case GroupResult(view):
            return [group(view)]
        case ScheduleResult(view):
            return [schedule(view)]
        case _:
            raise AssertionError(result)
