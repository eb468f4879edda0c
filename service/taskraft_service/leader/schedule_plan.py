"""Decide which times of a schedule are due now, and when to look again. Pure.

A time is due ``jitter_ms`` after itself at most: how much is drawn from a hash of name and time, so
that every leader finds the same. Times are put in order. One that is late by more than
``LATE_MS_MAX``, or was due during a pause, was missed; what becomes of it is the schedule's choice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from taskraft.v1 import schedule_service_pb2 as pb
from taskraft_service.languages.cron import Cron, cron
from taskraft_service.queue.entities.schedule_view import ScheduleView

LATE_MS_MAX: Final = 60_000
"""A time that is late by up to this was not missed: a change of leader takes a second or so."""
SLOTS_PER_RUN_MAX: Final = 100
"""Tasks that one command puts; what is left comes with the next one, at once."""
_HASH_BYTES: Final = 8


@dataclass(slots=True, frozen=True)
class SchedulePlan:
    """What to do about a schedule now.

    Args:
        slots_ms: the times to put a task for, in order.
        until_ms: times up to here are dealt with.
        next_ms: the first time after that; 0: none.
        due_ms: when to plan again; None: never.
    """

    slots_ms: tuple[int, ...]
    until_ms: int
    next_ms: int
    due_ms: int | None


def jitter_of(name: str, slot_ms: int, jitter_ms: int) -> int:
    """Return by how much a time is late, from 0 to ``jitter_ms``."""
    if jitter_ms <= 0:
        return 0
    seed = f"{name}\n{slot_ms}".encode()
    digest = hashlib.blake2b(seed, digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, "big") % (jitter_ms + 1)


def first_time(schedule: pb.Schedule, now_ms: int) -> int:
    """Return the first time of a pattern after now; 0: there is none.

    Raises:
        CronMalformed: the pattern is not one.
    """
    return cron(schedule.cron, schedule.time_zone).after(now_ms) or 0


def plan_schedule(view: ScheduleView, now_ms: int) -> SchedulePlan:
    """Return what is due of a schedule at a moment; a paused one waits for ever."""
    if view.options.paused or not view.next_ms:
        return SchedulePlan((), view.done_ms, view.next_ms, None)
    shown = pb.Schedule.FromString(view.options.body)
    times = cron(shown.cron, shown.time_zone)
    return _Planner(view, shown, times, now_ms).plan()


class _Planner:
    """The times of one schedule, split at one moment into missed, due and still to come."""

    def __init__(self, view: ScheduleView, shown: pb.Schedule, times: Cron, now_ms: int) -> None:
        self._view = view
        self._shown = shown
        self._times = times
        self._now_ms = now_ms
        self._missed_ms = max(view.since_ms, now_ms - LATE_MS_MAX)
        """What was due up to here was missed."""

    def plan(self) -> SchedulePlan:
        if self._due(self._view.next_ms) > self._now_ms:
            return self._waiting((), self._view.done_ms, self._view.next_ms)
        if self._shown.catch_up == pb.Schedule.ALL:
            return self._walk(self._view.done_ms, [], keep_all=True)
        # What lies before this was missed whatever its jitter: it is jumped over.
        sure_ms = max(self._view.done_ms, self._missed_ms - self._shown.jitter_ms - 1)
        slots: list[int] = []
        if self._shown.catch_up == pb.Schedule.ONE:
            last_ms = self._times.latest(self._view.done_ms, sure_ms)
            slots = [last_ms] if last_ms is not None else []
        return self._walk(sure_ms, slots, keep_all=False)

    def _walk(self, after_ms: int, slots: list[int], *, keep_all: bool) -> SchedulePlan:
        """Go on from an instant; ``slots`` has what was chosen before, at most one missed time."""
        until_ms = after_ms
        for at_ms in self._ahead(after_ms):
            due_ms = self._due(at_ms)
            if due_ms > self._now_ms or len(slots) >= SLOTS_PER_RUN_MAX:
                return self._waiting(tuple(slots), until_ms, at_ms)
            until_ms = at_ms
            if keep_all or due_ms > self._missed_ms:
                slots.append(at_ms)
            elif self._shown.catch_up == pb.Schedule.ONE:
                # One task for all that were missed: the last of them counts.
                slots = [at_ms]
        return SchedulePlan(tuple(slots), until_ms, 0, None)

    def _ahead(self, after_ms: int) -> Iterator[int]:
        """Yield the times after an instant; the one the schedule names comes first.

        It was reckoned before, and another edition of the time zones may not know it any more.
        """
        if self._view.next_ms > after_ms:
            yield self._view.next_ms
        yield from self._times.times(max(after_ms, self._view.next_ms))

    def _waiting(self, slots: tuple[int, ...], until_ms: int, next_ms: int) -> SchedulePlan:
        return SchedulePlan(slots, until_ms, next_ms, self._due(next_ms))

    def _due(self, at_ms: int) -> int:
        return at_ms + jitter_of(self._view.name, at_ms, self._shown.jitter_ms)
