"""Decide which times of a schedule are due now, and when to plan again.

Pure.

Each time is delayed by up to ``jitter_ms``, drawn from a hash of the schedule's name and the time,
so that every leader computes the same delay. Tasks are put in the order of their times. A time is
missed if it is late by more than ``LATE_MS_MAX`` or was due while the schedule was paused; the
schedule's ``catch_up`` decides whether it is put anyway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from taskraft.v1 import schedule_service_pb2 as pb
from taskraft_service.languages.cron import Cron, cron
from taskraft_service.queue.state.schedule_registry import ScheduleView

LATE_MS_MAX: Final = 60_000
"""Maximum delay of a time that does not count as missed, in ms. A change of leader takes about a
second."""
SLOTS_PER_RUN_MAX: Final = 100
"""Maximum number of tasks that one command puts; the rest follows in the next command at once."""
_HASH_BYTES: Final = 8


@dataclass(slots=True, frozen=True)
class SchedulePlan:
    """The actions for a schedule at one instant.

    Args:
        slots_ms: times to put a task for, in order.
        until_ms: all times up to this time are handled.
        next_ms: first time after ``until_ms``; 0: none.
        due_ms: when to plan again; None: never.
    """

    slots_ms: tuple[int, ...]
    until_ms: int
    next_ms: int
    due_ms: int | None


def jitter_of(name: str, slot_ms: int, jitter_ms: int) -> int:
    """Return the delay of a time, from 0 to ``jitter_ms``."""
    if jitter_ms <= 0:
        return 0
    seed = f"{name}\n{slot_ms}".encode()
    digest = hashlib.blake2b(seed, digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, "big") % (jitter_ms + 1)


def first_time(schedule: pb.Schedule, now_ms: int) -> int:
    """Return the first time of a cron pattern after ``now_ms``; 0: none.

    Raises:
        CronMalformed: the pattern is invalid.
    """
    return cron(schedule.cron, schedule.time_zone).after(now_ms) or 0


def plan_schedule(view: ScheduleView, now_ms: int) -> SchedulePlan:
    """Return the plan for a schedule at ``now_ms``; a paused schedule is never due."""
    if view.options.paused or not view.next_ms:
        return SchedulePlan((), view.done_ms, view.next_ms, None)
    shown = pb.Schedule.FromString(view.options.body)
    times = cron(shown.cron, shown.time_zone)
    return _Planner(view, shown, times, now_ms).plan()


class _Planner:
    """Splits the times of one schedule at one moment into missed, due and future times."""

    def __init__(self, view: ScheduleView, shown: pb.Schedule, times: Cron, now_ms: int) -> None:
        self._view = view
        self._shown = shown
        self._times = times
        self._now_ms = now_ms
        self._missed_ms = max(view.since_ms, now_ms - LATE_MS_MAX)
        """Times that were due at or before this instant are missed."""

    def plan(self) -> SchedulePlan:
        if self._due(self._view.next_ms) > self._now_ms:
            return self._waiting((), self._view.done_ms, self._view.next_ms)
        if self._shown.catch_up == pb.Schedule.ALL:
            return self._walk(self._view.done_ms, [], keep_all=True)
        # Times up to this instant are missed whatever their jitter, so the walk starts after it.
        sure_ms = max(self._view.done_ms, self._missed_ms - self._shown.jitter_ms - 1)
        slots: list[int] = []
        if self._shown.catch_up == pb.Schedule.ONE:
            last_ms = self._times.latest(self._view.done_ms, sure_ms)
            slots = [last_ms] if last_ms is not None else []
        return self._walk(sure_ms, slots, keep_all=False)

    def _walk(self, after_ms: int, slots: list[int], *, keep_all: bool) -> SchedulePlan:
        """Sort the times after ``after_ms`` into due and missed times, until the first future time.

        ``slots`` holds the times to put a task for: at first at most one missed time.
        """
        until_ms = after_ms
        for at_ms in self._ahead(after_ms):
            due_ms = self._due(at_ms)
            if due_ms > self._now_ms or len(slots) >= SLOTS_PER_RUN_MAX:
                return self._waiting(tuple(slots), until_ms, at_ms)
            until_ms = at_ms
            if keep_all or due_ms > self._missed_ms:
                slots.append(at_ms)
            elif self._shown.catch_up == pb.Schedule.ONE:
                # Put one task for all missed times: the last of them.
                slots = [at_ms]
        return SchedulePlan(tuple(slots), until_ms, 0, None)

    def _ahead(self, after_ms: int) -> Iterator[int]:
        """Yield the times after ``after_ms``; the schedule's stored ``next_ms`` comes first.

        The stored time was computed earlier, and another version of the time-zone data may not
        contain it.
        """
        if self._view.next_ms > after_ms:
            yield self._view.next_ms
        yield from self._times.times(max(after_ms, self._view.next_ms))

    def _waiting(self, slots: tuple[int, ...], until_ms: int, next_ms: int) -> SchedulePlan:
        return SchedulePlan(slots, until_ms, next_ms, self._due(next_ms))

    def _due(self, at_ms: int) -> int:
        return at_ms + jitter_of(self._view.name, at_ms, self._shown.jitter_ms)
