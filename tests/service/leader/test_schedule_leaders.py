"""Each scheduled time is put once and in order, for any leader and any delay of its entry."""

from datetime import UTC, datetime
from itertools import takewhile

from hypothesis import given, settings
from hypothesis import strategies as st

from taskraft.v1 import schedule_service_pb2 as pb
from taskraft.v1 import task_pb2
from taskraft_service.command_codecs.put import new_task
from taskraft_service.command_codecs.schedules import SLOT_HEADER, schedule_options, slot_mark
from taskraft_service.languages.cron import cron
from taskraft_service.leader.schedule_plan import LATE_MS_MAX, first_time, jitter_of, plan_schedule
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.schedules import CreateSchedule, RunSchedule, UpdateSchedule
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.schedule_registry import ScheduledTime
from tests.service.queue.memory_store import MemoryStore

SECOND = 1_000
MINUTE = 60_000
START = int(datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp() * 1000) + 7
"""Half an hour before clocks go back in Vienna."""
ONE, ALL = pb.Schedule.ONE, pb.Schedule.ALL


class Cluster:
    """One schedule and several nodes; each plans from its own state, and proposals may be late.

    ``puts`` are the scheduled times that were put, each with the time of its put.
    """

    def __init__(self, **fields):
        self.queue = Queue(MemoryStore(), Limits(), new_task)
        self.now_ms = START
        self.shown = pb.Schedule(name="s", tube="mail", time_zone="Europe/Vienna", **fields)
        self.puts = []
        self.proposed = []
        self.do(Startup(1, 0, "feed", 1), CreateTube("mail", TubeKind.FIFOTTL, TubeOptions()))
        options = schedule_options(self.shown)
        self.do(CreateSchedule("s", options, first_time(self.shown, START)))
        self.known = [self.view]
        """All earlier versions of the schedule, because a node that lags plans from one of these
        versions."""

    @property
    def view(self):
        return self.queue.schedule("s")

    def do(self, *commands):
        return self.queue.apply(self.queue.applied_index + 1, self.now_ms, commands)

    def passes(self, span_ms):
        self.now_ms += span_ms

    def plan(self, view, ahead_ms=0):
        """Let a node propose the times that are due by its clock."""
        plan = plan_schedule(view, self.now_ms + ahead_ms)
        if plan.until_ms > view.done_ms:
            slots = [ScheduledTime(at_ms, slot_mark(at_ms)) for at_ms in plan.slots_ms]
            run = RunSchedule("s", view.version, slots, plan.until_ms, plan.next_ms)
            self.proposed.append((self.now_ms + ahead_ms, run))

    def deliver(self, place):
        """Apply a proposal; the entry's timestamp is at least the proposed one."""
        timestamp_ms, run = self.proposed.pop(place % len(self.proposed))
        self.now_ms = max(self.now_ms, timestamp_ms)
        (result,) = self.do(run)
        tasks = self.queue.list_tasks("mail", (), len(self.puts), 1_000)
        assert len(tasks) == result.count
        for task in tasks:
            spec = task_pb2.TaskSpec.FromString(task.body)
            self.puts.append((int(spec.headers[SLOT_HEADER]), self.now_ms))
        self.known.append(self.view)

    def update(self, **fields):
        self.shown.MergeFrom(pb.Schedule(**fields))
        self.shown.paused = fields.get("paused", False)
        options = schedule_options(self.shown)
        self.do(UpdateSchedule("s", options, first_time(self.shown, self.now_ms)))
        self.known.append(self.view)

    def settle(self):
        """Plan from the current state and apply the proposals, until nothing is due."""
        while self.proposed or (not self.plan(self.view) and self.proposed):
            self.deliver(0)

    def times(self):
        """Return the times that are due now, up to the first time that is not due."""
        through = cron(self.shown.cron, self.shown.time_zone).times(START)
        return list(takewhile(lambda at_ms: self.due(at_ms) <= self.now_ms, through))

    def due(self, at_ms):
        return at_ms + jitter_of("s", at_ms, self.shown.jitter_ms)


SPANS = st.sampled_from((0, 1, SECOND, 29 * SECOND, MINUTE, 61 * SECOND, 10 * MINUTE, 90 * MINUTE))
AHEAD = st.sampled_from((0, 0, 5, 40 * SECOND, 2 * MINUTE))
PASSING = st.builds(lambda span_ms: ("passes", span_ms), SPANS)
PLANNING = st.tuples(st.just("plan"), st.integers(0, 20), AHEAD)
DELIVERY = st.builds(lambda place: ("deliver", place), st.integers(0, 9))
CHANGES = st.sampled_from(
    (
        {"paused": True},
        {"jitter_ms": 40 * SECOND},
        {"catch_up": ALL},
        {"cron": "*/7 * * * *"},
        {"cron": "30 2 * * *"},
    )
).map(lambda fields: ("update", fields))
CRONS = st.sampled_from(("* * * * *", "*/10 * * * *", "20,40 2 * * *"))
CATCH_UP = st.sampled_from((pb.Schedule.SKIP, ONE, ALL))
JITTERS = st.sampled_from((0, 0, 50 * SECOND))
WORK = PASSING | PLANNING | PLANNING | DELIVERY


def play(cluster, steps):
    for step in steps:
        match step:
            case ("passes", span_ms):
                cluster.passes(span_ms)
            case ("plan", age, ahead_ms):
                cluster.plan(cluster.known[-1 - age % len(cluster.known)], ahead_ms)
            case ("deliver", place) if cluster.proposed:
                cluster.deliver(place)
            case ("update", fields):
                cluster.update(**fields)
            case _:
                pass


@settings(deadline=None, max_examples=200)
@given(CRONS, CATCH_UP, JITTERS, st.lists(WORK | WORK | WORK | CHANGES, max_size=40))
def test_no_time_is_put_twice_or_early_or_out_of_order(pattern, catch_up, jitter_ms, steps):
    cluster = Cluster(cron=pattern, catch_up=catch_up, jitter_ms=jitter_ms)
    play(cluster, steps)
    cluster.settle()
    slots = [slot_ms for slot_ms, _ in cluster.puts]
    assert slots == sorted(set(slots))
    assert all(START < slot_ms <= put_ms for slot_ms, put_ms in cluster.puts)


@settings(deadline=None, max_examples=200)
@given(CRONS, JITTERS, st.lists(WORK, max_size=40))
def test_with_catch_up_all_every_time_is_put(pattern, jitter_ms, steps):
    cluster = Cluster(cron=pattern, catch_up=ALL, jitter_ms=jitter_ms)
    play(cluster, steps)
    cluster.settle()
    assert [slot_ms for slot_ms, _ in cluster.puts] == cluster.times()
    assert all(cluster.due(slot_ms) <= put_ms for slot_ms, put_ms in cluster.puts)


@settings(deadline=None, max_examples=200)
@given(CRONS, st.sampled_from((pb.Schedule.SKIP, ONE)), JITTERS, st.lists(WORK, max_size=40))
def test_punctual_times_are_put_and_with_catch_up_one_the_last_missed_time(
    pattern, catch_up, jitter_ms, steps
):
    cluster = Cluster(cron=pattern, catch_up=catch_up, jitter_ms=jitter_ms)
    play(cluster, steps)
    cluster.settle()
    times, slots = cluster.times(), [slot_ms for slot_ms, _ in cluster.puts]
    on_time = [at_ms for at_ms in times if cluster.due(at_ms) > cluster.now_ms - LATE_MS_MAX]
    assert set(on_time) <= set(slots) <= set(times)
    assert catch_up != ONE or slots[-1:] == times[-1:]
