"""Propose the due times of schedules, on the leader only.

A heap holds the next time of each schedule. The heap is not replicated: a new leader builds it from
the applied state. For each time, the queue puts a task only once, even if several leaders propose
it.

A stored cron expression or time zone can be unusable on this node, for example after an update of
the time-zone data. Such a schedule puts nothing and is planned again every
``UNUSABLE_RETRY_MS``; ``problems`` holds the reason. The other schedules run on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

import structlog

from taskraft_service.clock.cluster_clock import TIMER_MS_MAX
from taskraft_service.command_codecs.schedules import RUN_SCHEDULE
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.languages.cron import CronMalformed
from taskraft_service.leader.command_submitter import (
    AppliedCommand,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.leader.schedule_plan import plan_schedule
from taskraft_service.queue.queue import Queue
from taskraft_service.stubs.log.v1 import log_pb2

log: Final = structlog.get_logger(__name__)

RETRY_MS: Final = 1_000
"""Delay before a schedule is retried after its command was not applied."""
UNUSABLE_RETRY_MS: Final = 60_000
"""Delay before a schedule whose times this node cannot compute is planned again."""
UNUSABLE_PER_PASS_MAX: Final = 10
"""Maximum number of unusable schedules that one pass plans; a failed search for a time zone reads
several folders."""
RUNS_IN_FLIGHT_MAX: Final = 20
"""Maximum number of schedules with a command in flight; the others wait, and other commands need
not wait for long."""


class ScheduleSubmitter(Protocol):
    """The proposer, as the scheduler uses it."""

    def submit(
        self, encoded: EncodedCommand, deadline: float | None = None
    ) -> asyncio.Future[AppliedCommand]:
        """Propose a command with the next entry."""


class Scheduler:
    """The next times of the schedules, while this node leads.

    Args:
        queue: returns the queue; installing a snapshot replaces it.
        submitter: the proposer.
        now_ms: reads the wall time, which corrections can move forwards or backwards.
        has_room: returns whether the disk has space for new tasks. While the disk has none, due
            schedules wait; ``catch_up`` decides about the missed times, as after an outage.
    """

    def __init__(
        self,
        queue: Callable[[], Queue],
        submitter: ScheduleSubmitter,
        now_ms: Callable[[], int],
        *,
        has_room: Callable[[], bool],
        timer_ms_max: int = TIMER_MS_MAX,
    ) -> None:
        self._timer_ms_max = timer_ms_max
        self._queue = queue
        self._submitter = submitter
        self._now_ms = now_ms
        self._has_room = has_room
        self._heap: list[tuple[int, str]] = []
        self._due: dict[str, int] = {}
        """Time at which to plan each schedule; a heap entry with another time is outdated."""
        self._running: set[str] = set()
        self._problems: dict[str, CronMalformed] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._open = False

    @property
    def problems(self) -> Mapping[str, CronMalformed]:
        """Errors of the schedules whose times this leader cannot compute, by name.

        Not replicated: another node can have other time-zone data.
        """
        return self._problems

    def phase_changed(self, phase: NodePhase) -> None:
        """Run schedules while this node serves."""
        if phase is NodePhase.RUNNING:
            self.begin()
        elif self._open:
            self.end()

    def begin(self) -> None:
        """Start running schedules; called once all entries of earlier leaderships are applied."""
        self._open = True
        queue = self._queue()
        queue.changed_schedules()
        # These are the times without jitter; planning adds the jitter.
        self._heap = queue.schedule_times()
        self._due = {name: due_ms for due_ms, name in self._heap}
        heapify(self._heap)
        self._set_timer()

    def end(self) -> None:
        """Stop running schedules; another node runs them from now on."""
        self._open = False
        self._heap, self._due = [], {}
        self._running.clear()
        self._problems = {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def applied(self, _now_ms: int) -> None:
        """Plan schedules that changed; called after each slice of applied entries."""
        changed = self._queue().changed_schedules()
        if not (changed and self._open):
            return
        for name in changed:
            self._enlist(name, 0)
        self._set_timer()

    def wall_time_changed(self) -> None:
        """Set the timer again, because a correction of the wall time changes when tasks are due."""
        if self._open:
            self._set_timer()

    def _enlist(self, name: str, due_ms: int) -> None:
        """Plan a schedule at ``due_ms``; 0: as soon as possible."""
        self._due[name] = due_ms
        heappush(self._heap, (due_ms, name))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not (self._open and self._heap) or len(self._running) >= RUNS_IN_FLIGHT_MAX:
            return
        wait_ms = min(max(self._heap[0][0] - self._now_ms(), 0), self._timer_ms_max)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._run_due)

    def _run_due(self) -> None:
        """Run the schedules that are due."""
        now_ms = self._now_ms()
        unusable = 0
        while self._heap and self._heap[0][0] <= now_ms:
            if len(self._running) >= RUNS_IN_FLIGHT_MAX or unusable >= UNUSABLE_PER_PASS_MAX:
                break
            due_ms, name = heappop(self._heap)
            if self._due.get(name) != due_ms:
                continue
            del self._due[name]
            if name not in self._running:
                self._run(name, now_ms)
                unusable += name in self._problems
        self._set_timer()

    def _run(self, name: str, now_ms: int) -> None:
        """Propose the due times of one schedule, or enlist it for its next time."""
        view = self._queue().schedule(name)
        if view is None:
            self._problems.pop(name, None)
            return
        try:
            plan = plan_schedule(view, now_ms)
        except CronMalformed as error:
            self._note_problem(name, error)
            self._enlist(name, now_ms + UNUSABLE_RETRY_MS)
            return
        self._problems.pop(name, None)
        if plan.until_ms <= view.done_ms:
            if plan.due_ms is not None:
                self._enlist(name, plan.due_ms)
            return
        if plan.slots_ms and not self._has_room():
            self._postpone(name, "free disk space is low")
            return
        message = log_pb2.RunSchedule(
            name=name,
            version=view.version,
            slots_ms=plan.slots_ms,
            until_ms=plan.until_ms,
            next_ms=plan.next_ms,
        )
        try:
            proposed = self._submitter.submit(encode_leader_command(RUN_SCHEDULE, message))
        except (LeaderOverloaded, NotProposed) as error:
            self._postpone(name, str(error))
            return
        self._running.add(name)
        proposed.add_done_callback(partial(self._done, name))

    def _done(self, name: str, proposed: asyncio.Future[AppliedCommand]) -> None:
        """Continue after a command; ``applied`` enlists the schedule again if it was applied."""
        error = None if proposed.cancelled() else proposed.exception()
        if not isinstance(error, NotProposed | OutcomeUnknown | LeaderOverloaded | None):
            raise error
        if not self._open:
            return
        self._running.discard(name)
        if error is not None:
            self._postpone(name, str(error))
        elif name not in self._due:
            self._enlist(name, 0)
        self._set_timer()

    def _note_problem(self, name: str, error: CronMalformed) -> None:
        """Store why a schedule cannot run; log a new reason once."""
        before = self._problems.get(name)
        self._problems[name] = error
        if before is None or str(before) != str(error):
            log.error(
                "cannot compute the times of a schedule; change or delete the schedule, or"
                " update the time-zone data of this node",
                schedule=name,
                field=error.field,
                reason=str(error),
            )

    def _postpone(self, name: str, reason: str) -> None:
        log.info("schedule postponed", schedule=name, reason=reason)
        self._enlist(name, self._now_ms() + RETRY_MS)
