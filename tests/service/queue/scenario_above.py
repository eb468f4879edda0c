"""The words of scenario files for what is above single tasks: schedules.

    schedule NAME tube=mail next=60 body=x overlap=skip paused pattern=daily
    reschedule NAME ...          the same words; replaces it
    unschedule NAME
    run NAME version=1 slots=60,120 until=120 next=180

``schedules`` asks for all of them.
"""

from __future__ import annotations

from service.queue.commands import (
    CreateSchedule,
    DeleteSchedule,
    Overlap,
    RunSchedule,
    ScheduleOptions,
    ScheduleResult,
    Slot,
    UpdateSchedule,
)

EPOCH_MS = 1_000_000
"""The clock's time at the beginning; instants are shown relative to it."""
QUESTIONS = ("schedules",)
FLAGS = ("paused",)


def command(word, target, found):
    """Read a command."""
    match word:
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
                [Slot(int(slot) + EPOCH_MS) for slot in slots.split(",") if slot],
                at(found, "until"),
                at(found, "next"),
            )
        case _:
            raise AssertionError(word)


def schedule_options(found):
    return ScheduleOptions(
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
    """Answer a question."""
    assert word == "schedules", word
    return [schedule(view) for view in queue.schedules()] or ["none"]


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


def told(result):
    """Return the answer to a command as lines."""
    match result:
        case ScheduleResult(view):
            return [schedule(view)]
        case _:
            raise AssertionError(result)
