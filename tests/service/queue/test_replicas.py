"""Equal entries give equal states, with any memory limits, batches of writes and crashes.

Three replicas of one queue get the same entries. The first replica keeps everything in memory and
never writes. The second replica has a small memory and writes at random. The third replica also
crashes between writes and is reopened. Differences show without a model, so every command can take
part.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from taskraft_service.queue.entities.group import GroupTask
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.retry_policy import Exhausted, RetryPolicy
from taskraft_service.queue.entities.tube_options import OnAck, TtlScope, TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.command_definition import Idempotent
from taskraft_service.queue.operations.groups import CancelGroup, CreateGroup, StartGroup
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.registry import ManagedCommand
from taskraft_service.queue.operations.schedules import (
    CreateSchedule,
    DeleteSchedule,
    RunSchedule,
    UpdateSchedule,
)
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.settlements import Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.schedule_registry import Overlap, ScheduledTime, ScheduleSpec
from taskraft_service.queue.store.idempotency import request_scope
from tests.service.queue.entities.test_tube_driver import Newest
from tests.service.queue.memory_store import MemoryStore
from tests.service.queue.orders.test_subqueue_properties import PLAIN_TASKS
from tests.service.queue.random_commands import (
    IDS,
    NEW_TASKS,
    PASSED,
    SETTLEMENTS,
    TUBES,
    UPDATES,
    any_command,
)
from tests.service.queue.random_management import management_command
from tests.service.queue.scenario_policies import replaced
from tests.service.queue.test_queue_properties import LIMITS

DEFAULTS = Limits()
ROOMY = replace(
    LIMITS,
    head_entries_max=DEFAULTS.head_entries_max,
    subqueue_entries_max=DEFAULTS.subqueue_entries_max,
    subqueues_max=DEFAULTS.subqueues_max,
    resident_bytes_max=DEFAULTS.resident_bytes_max,
    feed_chunk_rows_max=DEFAULTS.feed_chunk_rows_max,
)
"""Limits with the values of the first replica for entries, and with smaller values for memory."""
POLICED = ("mail", "tried", "slow", "few")
GROUPS = st.sampled_from(("g", "h"))
OPTIONS = st.sampled_from(
    (
        {"concurrency": 1},
        {"concurrency": 0},
        {"rate_per_second": 30, "rate_burst": 1},
        {"rate_per_second": 0, "rate_burst": 0},
        {"rate_per_second": 1_000, "rate_burst": 0},
        {"retry": RetryPolicy(1, exhausted=Exhausted.REMOVE)},
        {"retry": RetryPolicy(backoff_ms=7, jitter_percent=100)},
        {"on_ack": OnAck.RETAIN, "retain_ms": 15},
        {"on_ack": OnAck.REMOVE},
        {"capacity_tasks": 3},
        {"buried_max": 1},
        {"ttl_scope": TtlScope.ALL},
        {"take_paused": True},
        {"take_paused": False},
        {"dead_letter_tube": "dead"},
        {"ttl_ms": 30, "ttr_ms": 10},
    )
)
CHOSEN = st.builds(ByIds, st.lists(IDS, min_size=1, max_size=2))
BATCHES = st.builds(
    ExecuteBatch,
    st.lists(
        st.one_of(
            st.builds(Put, TUBES, st.lists(NEW_TASKS, min_size=1, max_size=2)),
            st.builds(Settle, st.lists(SETTLEMENTS, min_size=1, max_size=2)),
            st.builds(Kick, TUBES, st.just(0), CHOSEN, update=UPDATES),
            st.builds(Bury, TUBES, CHOSEN),
            st.builds(Delete, TUBES, CHOSEN),
            st.builds(UpdateTasks, TUBES, CHOSEN, UPDATES.filter(bool)),
        ),
        min_size=1,
        max_size=3,
    ),
)
"""Commands that are mostly refused; the queue itself asserts that checked commands succeed."""
SCHEDULES = st.sampled_from(("nightly", "weekly"))
PLANS = st.builds(
    ScheduleSpec,
    st.sampled_from(("mail", "room", "own", "nowhere")),
    st.sampled_from(("a", "b")),
    st.sampled_from(Overlap),
    st.booleans(),
    st.just(b"due"),
)
SLOTS = st.lists(st.integers(1, 400), min_size=1, max_size=3, unique=True).map(sorted)
SCHEDULED = st.one_of(
    st.builds(CreateSchedule, SCHEDULES, PLANS, st.integers(0, 300)),
    st.builds(UpdateSchedule, SCHEDULES, PLANS, st.integers(0, 300)),
    st.builds(DeleteSchedule, SCHEDULES),
    st.builds(
        lambda name, version, slots: RunSchedule(
            name, version, [ScheduledTime(at_ms, b"!") for at_ms in slots], slots[-1], slots[-1] + 9
        ),
        SCHEDULES,
        st.integers(0, 3),
        SLOTS,
    ),
)
OTHERS = st.one_of(
    BATCHES,
    SCHEDULED,
    st.builds(Put, st.just("own"), st.lists(PLAIN_TASKS, min_size=1, max_size=3)),
    st.builds(Take, st.just(["own"]), tasks_max=st.integers(1, 3)),
    st.builds(
        lambda tube, options: UpdateTube(tube, TubeOptions(**options), list(options)),
        st.sampled_from(POLICED),
        OPTIONS,
    ),
    st.builds(
        lambda tube, tasks, group: Put(
            tube, [NewTask(task.body, task.payload_bytes, group=group) for task in tasks]
        ),
        st.sampled_from(POLICED),
        st.lists(NEW_TASKS, min_size=1, max_size=3),
        GROUPS,
    ),
    st.builds(
        Put,
        st.sampled_from(("retained", "tried")),
        st.lists(PLAIN_TASKS, min_size=1, max_size=5),
    ),
    st.builds(
        CreateGroup,
        GROUPS,
        st.none() | st.just(GroupTask("mail", b"end")),
        st.none() | st.just(GroupTask("dead", b"abort")),
        st.booleans(),
    ),
    st.builds(StartGroup, GROUPS),
    st.builds(CancelGroup, GROUPS, st.booleans()),
    management_command(),
)
OPENING = (
    Startup(1, 0, "feed", 3),
    *(CreateTube(name, TubeKind.FIFOTTL, TubeOptions()) for name in ("mail", "kept", "high")),
    CreateTube("plain", TubeKind.FIFO, TubeOptions(concurrency=2)),
    CreateTube("retained", TubeKind.UTUBE, TubeOptions(on_ack=OnAck.RETAIN, retain_ms=20)),
    CreateTube(
        "tried",
        TubeKind.UTUBETTL,
        TubeOptions(
            retry=RetryPolicy(2, 10, jitter_percent=50, exhausted=Exhausted.DEAD_LETTER),
            dead_letter_tube="dead",
            subqueue_weights=(("a", 2),),
            subqueue_rate_per_second=60,
            subqueue_rate_burst=2,
        ),
    ),
    CreateTube("dead", TubeKind.LIMFIFOTTL, TubeOptions(capacity_tasks=4, buried_max=2)),
    CreateTube("own", TubeKind.CUSTOM, TubeOptions(), driver="newest", driver_version=3),
    CreateTube("slow", TubeKind.FIFOTTL, TubeOptions(rate_per_second=40, rate_burst=2)),
    CreateTube("few", TubeKind.FIFOTTL, TubeOptions(concurrency=2, rate_per_second=70)),
    OpenSession("session-one", "", 100),
)


@st.composite
def any_of_all(draw):
    """Draw a command, sometimes one that repeats or contradicts an earlier request_id."""
    command = draw(st.one_of(any_command(), any_command(), OTHERS))
    if isinstance(command, ManagedCommand):
        return replace(command, command=repeating(draw, command.command))
    return repeating(draw, command)


def repeating(draw, command):
    """Return a command, sometimes with an earlier request_id."""
    scoped = request_scope("", "client") + "one"
    request_id = draw(st.sampled_from(("", "", "", "one", "two", scoped)))
    if not request_id or isinstance(command, Idempotent):
        return command
    return replace(command, request_id=request_id, request_hash=draw(st.sampled_from((1, 1, 2))))


class ReplicaMachine(RuleBasedStateMachine):
    """Three replicas that get the same entries."""

    def __init__(self):
        super().__init__()
        self.stores = [MemoryStore(), MemoryStore(), MemoryStore()]
        self.queues = [self.open(0), self.open(1), self.open(2)]
        self.index = self.now = 0
        self.unwritten = []
        """Entries that the third replica loses in a crash."""

    def open(self, place):
        limits = LIMITS if place else ROOMY
        return Queue(self.stores[place], limits, editor=replaced, drivers={"newest": Newest()})

    def apply(self, passed, commands):
        self.index += 1
        self.now += passed
        self.unwritten.append((self.index, self.now, commands))
        results = [queue.apply(self.index, self.now, commands) for queue in self.queues]
        assert repr(results[0]) == repr(results[1]) == repr(results[2])

    @initialize()
    def begin(self):
        self.apply(5, OPENING)

    @rule(passed=PASSED, commands=st.lists(any_of_all(), max_size=5))
    def entry(self, passed, commands):
        self.apply(passed, commands)

    @rule(place=st.integers(1, 2))
    def collect(self, place):
        self.stores[place].write(self.queues[place].collect_writes())
        if place == 2:
            self.unwritten = []

    @rule()
    def crash_and_reopen(self):
        """Crash the replica: unwritten changes are lost, and the entries are applied again."""
        self.stores[2] = self.stores[2].copy()
        self.queues[2] = self.open(2)
        for index, now_ms, commands in self.unwritten:
            self.queues[2].apply(index, now_ms, commands)

    @invariant()
    def replicas_agree(self):
        assert len({queue.next_deadline_ms() for queue in self.queues}) == 1
        assert len({queue.digest() for queue in self.queues}) == 1


ReplicaMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestReplicas = ReplicaMachine.TestCase
