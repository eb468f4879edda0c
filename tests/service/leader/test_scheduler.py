"""Schedules are planned when a time is due, and failed runs are retried."""

import asyncio
from dataclasses import replace

import pytest

from taskraft_service.clock.cluster_clock import TIMER_MS_MAX
from taskraft_service.leader.command_submitter import (
    AppliedCommand,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.leader.scheduler import RETRY_MS, RUNS_IN_FLIGHT_MAX, Scheduler
from taskraft_service.queue.entities.refusal import CountResult
from tests.service.leader.test_schedule_plan import MINUTE, START, view

DONE = AppliedCommand(1, 1, 0, CountResult(1))
FIRST, SECOND = START + 10 * MINUTE, START + 20 * MINUTE


class Queue:
    """Schedules with the times 10, 20, ... minutes after the start."""

    def __init__(self, *names):
        self.views = {name: replace(view(), name=name) for name in names}
        self.changed = []

    def schedule_times(self):
        return [
            (view.next_ms, view.name)
            for view in self.views.values()
            if view.next_ms and not view.options.paused
        ]

    def schedule(self, name):
        return self.views.get(name)

    def changed_schedules(self):
        changed, self.changed = self.changed, []
        return changed


class Bench:
    def __init__(self, *names):
        self.queue = Queue(*names)
        self.now_ms = FIRST
        self.has_room = True
        self.refusal = None
        self.runs = []
        self.scheduler = Scheduler(
            lambda: self.queue, self, lambda: self.now_ms, has_room=lambda: self.has_room
        )
        self.waits = []

    def submit(self, recorded):
        if self.refusal is not None:
            raise self.refusal
        future = asyncio.get_running_loop().create_future()
        self.runs.append((recorded.command.name, future))
        return future

    def look(self):
        self.scheduler._run_due()
        return [name for name, _ in self.runs]

    async def end(self, place=0, error=None):
        """End a run; the applied change of its schedule is reported first."""
        name, future = self.runs[place]
        if error is None:
            shown = self.queue.views[name]
            done_ms = shown.next_ms
            self.queue.views[name] = replace(shown, done_ms=done_ms, next_ms=done_ms + 10 * MINUTE)
            future.set_result(DONE)
        else:
            future.set_exception(error)
        await asyncio.sleep(0)


@pytest.fixture
async def bench(monkeypatch):
    one = Bench("s")
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def note(seconds, what, *arguments):
        if what != one.scheduler._run_due:
            return call_later(seconds, what, *arguments)
        one.waits.append(seconds)
        return call_later(3_600, what)

    monkeypatch.setattr(loop, "call_later", note)
    one.scheduler.begin()
    yield one
    one.scheduler.end()


@pytest.fixture
async def unhandled():
    """Collect exceptions of callbacks, which stop a node, and unretrieved errors."""
    raised = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: raised.append(context["exception"])
    )
    return raised


async def test_a_due_time_is_proposed_once(bench):
    bench.now_ms = FIRST - 1
    assert bench.look() == []
    bench.now_ms = FIRST
    assert bench.look() == ["s"]
    assert bench.look() == ["s"]


async def test_after_a_run_the_scheduler_waits_for_the_next_time(bench):
    bench.look()
    await bench.end()
    assert bench.waits[-1] == 0
    bench.look()
    assert bench.scheduler._due == {"s": SECOND}
    bench.now_ms = SECOND
    assert bench.look() == ["s", "s"]


async def test_the_timer_waits_for_the_next_time_up_to_a_maximum(bench):
    bench.now_ms = FIRST - 500
    bench.scheduler.begin()
    assert bench.waits[-1] == 0.5
    bench.now_ms = FIRST - 10 * TIMER_MS_MAX
    bench.scheduler.begin()
    assert bench.waits[-1] == TIMER_MS_MAX / 1000
    bench.now_ms = SECOND
    bench.scheduler.begin()
    assert bench.waits[-1] == 0


async def test_a_correction_of_the_wall_time_sets_the_timer_again(bench):
    bench.now_ms = FIRST - 10 * TIMER_MS_MAX
    bench.scheduler.begin()
    bench.now_ms = FIRST - 500
    bench.scheduler.wall_time_changed()
    assert bench.waits[-1] == 0.5
    bench.scheduler.end()
    waits = len(bench.waits)
    bench.scheduler.wall_time_changed()
    assert len(bench.waits) == waits


async def test_the_timer_waits_for_the_earliest_time_of_all_schedules(bench):
    later = replace(view(), name="a", next_ms=SECOND)
    bench.queue.views = {"a": later, "b": replace(view(), name="b", next_ms=FIRST)}
    bench.now_ms = FIRST - 500
    bench.scheduler.begin()
    assert bench.waits[-1] == 0.5


@pytest.mark.parametrize("error", [NotProposed("x"), OutcomeUnknown("x"), LeaderOverloaded("x")])
async def test_a_run_that_failed_is_retried(bench, error):
    bench.look()
    await bench.end(error=error)
    assert bench.waits[-1] == RETRY_MS / 1000
    assert bench.look() == ["s"]
    bench.now_ms += RETRY_MS
    assert bench.look() == ["s", "s"]


@pytest.mark.parametrize("error", [NotProposed("x"), LeaderOverloaded("x")])
async def test_a_run_that_cannot_be_proposed_is_retried(bench, error):
    bench.refusal = error
    bench.look()
    bench.refusal = None
    assert bench.look() == []
    assert bench.waits[-1] == RETRY_MS / 1000
    bench.now_ms += RETRY_MS
    assert bench.look() == ["s"]


async def test_nothing_is_put_while_disk_space_is_low(bench):
    bench.has_room = False
    assert bench.look() == []
    bench.has_room = True
    bench.now_ms += RETRY_MS - 1
    assert bench.look() == []
    bench.now_ms += 1
    assert bench.look() == ["s"]


async def test_a_bug_is_raised_and_not_retried(bench, unhandled):
    bench.look()
    defect = KeyError()
    await bench.end(error=defect)
    assert unhandled == [defect]


async def test_a_cancelled_run_frees_its_schedule(bench):
    bench.look()
    bench.runs[0][1].cancel()
    await asyncio.sleep(0)
    assert bench.look() == ["s", "s"]


async def test_a_changed_schedule_is_planned_at_once_but_not_while_it_runs(bench):
    bench.now_ms = FIRST - 1
    bench.queue.views["new"] = replace(view(following=1), name="new")
    bench.queue.changed = ["new"]
    bench.scheduler.applied(0)
    assert bench.waits[-1] == 0
    assert bench.look() == ["new"]
    bench.queue.changed = ["new"]
    bench.scheduler.applied(0)
    assert bench.look() == ["new"]
    await bench.end()
    assert bench.scheduler._due["new"] == 0


async def test_no_timer_is_set_if_no_schedule_has_changed(bench):
    before = len(bench.waits)
    bench.scheduler.applied(0)
    assert len(bench.waits) == before


async def test_outdated_times_and_deleted_schedules_are_skipped(bench):
    bench.queue.views["s"] = replace(bench.queue.views["s"], next_ms=SECOND)
    bench.queue.changed = ["s"]
    bench.scheduler.applied(0)
    assert bench.look() == []
    assert bench.scheduler._due == {"s": SECOND}
    del bench.queue.views["s"]
    bench.now_ms = SECOND
    assert bench.look() == []
    assert bench.scheduler._due == {}


async def test_the_number_of_concurrent_runs_is_limited(bench):
    names = [f"s{number:03}" for number in range(RUNS_IN_FLIGHT_MAX + 2)]
    bench.queue = Queue(*names)
    bench.scheduler.begin()
    waits = len(bench.waits)
    assert bench.look() == names[:RUNS_IN_FLIGHT_MAX]
    assert len(bench.waits) == waits, "the end of a run sets the timer"
    await bench.end()
    assert bench.waits[-1] == 0
    assert bench.look() == names[: RUNS_IN_FLIGHT_MAX + 1]


async def test_paused_and_ended_schedules_are_not_waited_for(bench):
    shown = bench.queue.views["s"]
    bench.queue.views["ended"] = replace(shown, name="ended", next_ms=0)
    paused = replace(shown.options, paused=True)
    bench.queue.views["paused"] = replace(shown, name="paused", options=paused)
    bench.scheduler.begin()
    assert bench.scheduler._due == {"s": FIRST}


async def test_changes_before_a_leadership_are_planned_once(bench):
    bench.queue.changed = ["s"]
    bench.scheduler.begin()
    bench.scheduler.applied(0)
    assert bench.scheduler._due == {"s": FIRST}


async def test_a_deposed_leader_runs_nothing(bench, unhandled):
    bench.look()
    bench.queue.changed = ["s"]
    bench.scheduler.applied(0)
    bench.scheduler.phase_changed(NodePhase.ENDING)
    assert bench.scheduler._timer is None
    assert not bench.scheduler._heap
    waits = len(bench.waits)
    await bench.end(error=NotProposed("x"))
    bench.queue.changed = ["s"]
    bench.scheduler.applied(0)
    bench.look()
    assert (len(bench.runs), len(bench.waits)) == (1, waits)
    bench.runs.clear()
    assert not unhandled
    bench.scheduler.phase_changed(NodePhase.RUNNING)
    assert bench.look() == ["s"]
