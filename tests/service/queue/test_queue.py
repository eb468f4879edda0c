"""Guarantees to the leader: no exceptions, limits, readiness, and memory that follows the work."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskraft_service.languages.filter_text import read_filter
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.retry_policy import Exhausted, Position, RetryPolicy
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.entities.tube_options import (
    OnAck,
    TtlPolicy,
    TtlScope,
    TubeKind,
    TubeOptions,
)
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.admin import Restart, Snatch, Switch
from taskraft_service.queue.operations.cancel import Cancel
from taskraft_service.queue.operations.feed import TrimFeed
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick, ReleaseAll
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByFilter, ByIds, ByKeys
from taskraft_service.queue.operations.sessions import (
    AttachSession,
    CloseSession,
    KeepSessions,
    OpenSession,
)
from taskraft_service.queue.operations.settlements import (
    Ack,
    BuryTaken,
    Keep,
    Reject,
    Release,
    Settle,
    Touch,
)
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube
from taskraft_service.queue.persistence.state_records import UnknownFormatError
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.store.keys import META
from taskraft_service.queue.transitions.updating import TaskUpdate
from tests.service.queue.memory_store import MemoryStore
from tests.service.queue.scenario_policies import replaced

NAMES = st.sampled_from(("a", "b", "", "ü" * 60))
INT64 = st.integers(-(2**63), 2**63 - 1)
WISHES = st.none() | INT64
IDS = st.lists(INT64 | st.integers(1, 5), max_size=4)
POLICIES = st.builds(
    RetryPolicy,
    INT64 | st.integers(0, 3),
    INT64,
    INT64 | st.integers(0, 500),
    INT64,
    INT64 | st.integers(0, 100),
    st.sampled_from(Exhausted),
    st.sampled_from(Position),
)
UPDATES = st.none() | st.builds(TaskUpdate, st.binary(), WISHES, WISHES, WISHES, WISHES)
TASKS = st.lists(
    st.builds(
        NewTask,
        st.binary(max_size=5),
        st.integers(0, 2**31 - 1),
        WISHES,
        WISHES,
        WISHES,
        WISHES,
        WISHES,
        NAMES,
        NAMES,
        st.sampled_from(Position),
        st.none() | POLICIES,
    ),
    max_size=3,
)
SELECTORS = st.one_of(
    st.builds(ByIds, IDS),
    st.builds(ByKeys, st.lists(st.tuples(NAMES), max_size=2)),
    st.builds(
        ByFilter,
        st.sampled_from([read_filter(text) for text in ("", "state = TAKEN", "age > 1ms")]),
        INT64,
        INT64,
    ),
)
SWITCH_STATES = (State.READY, State.DELAYED, State.BURIED, State.DONE, State.ZOMBIE)
FAILURES = st.none() | st.builds(Failure, NAMES, NAMES, st.booleans())
SETTLEMENTS = st.lists(
    st.one_of(
        st.builds(Ack, IDS),
        st.builds(
            Ack,
            IDS,
            st.none() | st.binary(),
            NAMES,
            st.sampled_from(Keep),
            WISHES,
            UPDATES,
        ),
        st.builds(
            Release,
            IDS,
            st.none() | INT64,
            st.none() | st.sampled_from(TtlPolicy),
            WISHES,
            st.sampled_from(Position),
            st.booleans(),
            FAILURES,
            NAMES,
            UPDATES,
        ),
        st.builds(BuryTaken, IDS, FAILURES, UPDATES),
        st.builds(Reject, IDS, FAILURES),
        st.builds(Touch, IDS, INT64, st.booleans()),
    ),
    max_size=3,
)
OPTIONS = st.builds(
    TubeOptions, st.booleans(), INT64, INT64, INT64, INT64, st.booleans(), st.booleans()
)
SMALL = st.integers(0, 3) | INT64
POLICED = st.builds(
    TubeOptions,
    ttl_scope=st.sampled_from(TtlScope),
    on_ack=st.sampled_from(OnAck),
    retain_ms=SMALL,
    capacity_tasks=SMALL,
    buried_max=SMALL,
    retry=POLICIES,
    dead_letter_tube=NAMES,
    concurrency=SMALL,
    rate_per_second=SMALL,
    rate_burst=SMALL,
    subqueue_rate_per_second=SMALL,
    subqueue_rate_burst=SMALL,
)
REQUEST = (st.sampled_from(("", "", "r1", "r2")), st.integers(0, 2**64 - 1))
ANY = st.one_of(
    st.builds(Put, NAMES, TASKS, st.booleans(), *REQUEST),
    st.builds(
        Take,
        st.lists(NAMES, max_size=3),
        NAMES,
        INT64 | st.integers(0, 5),
        INT64,
        WISHES,
        st.lists(NAMES, max_size=2),
        WISHES,
        st.none() | st.none() | INT64,
        *REQUEST,
    ),
    st.builds(Settle, SETTLEMENTS, st.booleans(), *REQUEST),
    st.builds(Kick, NAMES, INT64, st.none() | SELECTORS, INT64, *REQUEST),
    st.builds(Bury, NAMES, SELECTORS, FAILURES, *REQUEST),
    st.builds(Delete, NAMES, SELECTORS, *REQUEST),
    st.builds(Snatch, NAMES, SELECTORS, INT64, *REQUEST),
    st.builds(Restart, NAMES, SELECTORS, INT64, *REQUEST),
    st.builds(Switch, NAMES, SELECTORS, st.sampled_from(SWITCH_STATES), INT64, *REQUEST),
    st.builds(Cancel, NAMES, SELECTORS, *REQUEST),
    st.builds(
        CreateTube,
        NAMES,
        st.sampled_from([kind for kind in TubeKind if kind is not TubeKind.CUSTOM]),
        OPTIONS | POLICED,
        st.booleans(),
        *REQUEST,
    ),
    st.builds(DropTube, NAMES, st.booleans(), *REQUEST),
    st.builds(TruncateTube, NAMES, *REQUEST),
    st.builds(ReleaseAll, NAMES, *REQUEST),
    st.builds(OpenSession, NAMES, NAMES, INT64, *REQUEST),
    st.builds(KeepSessions, st.lists(NAMES, max_size=3)),
    st.builds(AttachSession, NAMES, st.booleans()),
    st.builds(CloseSession, NAMES, st.booleans(), *REQUEST),
    st.builds(Startup, INT64, INT64, NAMES, st.integers(0, 16)),
    st.builds(TrimFeed, st.dictionaries(INT64, INT64, max_size=2)),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 2**40), st.lists(ANY, max_size=6)), max_size=6))
def test_apply_never_raises(entries):
    """Commands with any numbers and names get an answer, and the state can be written."""
    store = MemoryStore()
    queue = Queue(store, Limits(head_entries_max=2), editor=replaced)
    policed = TubeOptions(
        retry=RetryPolicy(1, exhausted=Exhausted.DEAD_LETTER),
        dead_letter_tube="a",
        rate_per_second=5,
        buried_max=1,
        ttl_scope=TtlScope.ALL,
    )
    opening = [
        CreateTube("a", TubeKind.FIFOTTL, TubeOptions()),
        CreateTube("b", TubeKind.FIFOTTL, policed),
    ]
    now_ms = 1
    for index, (passed, entry) in enumerate([(0, opening), *entries], 1):
        now_ms += passed
        queue.could_be_ready(entry, now_ms)
        assert len(queue.apply(index, now_ms, entry)) == len(entry)
        store.write(queue.collect_writes())
    assert Queue(store, Limits()).digest() == queue.digest()


class Node:
    def __init__(self, limits=None, kind=TubeKind.FIFOTTL):
        self.limits = limits or Limits()
        self.store = MemoryStore()
        self.queue = Queue(self.store, self.limits)
        self.index = 0
        self.do(Startup(1, 0, "feed", 1), CreateTube("mail", kind, TubeOptions()))

    def do(self, *entry, now_ms=1_000):
        self.index += 1
        return self.queue.apply(self.index, now_ms, entry)

    def put(self, tasks, **wishes):
        return self.do(Put("mail", [NewTask(b"body", 4, **wishes) for _ in range(tasks)]))[0]

    def collect(self):
        self.store.write(self.queue.collect_writes())

    def resident(self):
        return len(self.queue._state.tubes["mail"].tasks)


def test_clock_and_index_never_go_back():
    node = Node()
    with pytest.raises(AssertionError, match="the clock goes back"):
        node.do(now_ms=999)
    with pytest.raises(AssertionError, match="entry 2 after 2"):
        node.queue.apply(2, 1_000, [])


def test_a_store_of_another_format_is_refused():
    with pytest.raises(UnknownFormatError, match="format 255"):
        Queue(MemoryStore({META: b"\xff\x00\x01"}), Limits())


def test_a_task_removed_between_two_collections_is_never_written():
    node = Node()
    node.collect()
    node.put(100, ttl_ms=5_000)
    node.do(Take(["mail"], tasks_max=100))
    node.do(Settle([Ack(list(range(1, 101)))]))
    keys = {key[:1] for key, _ in node.queue.collect_writes()}
    assert keys == {b"m", b"u", b"f"}


def test_each_key_is_written_at_most_once():
    node = Node()
    node.put(20, delay_ms=5)
    node.collect()
    for number in range(1, 5):
        node.do(Take(["mail"], tasks_max=3, ttr_ms=10**6), now_ms=1_000 + number * 5)
        node.do(Settle([Release([number * 3], delay_ms=50)]), now_ms=1_000 + number * 5)
        writes = list(node.queue.collect_writes())
        keys = [key for key, _ in writes]
        assert len(keys) == len(set(keys))
        node.store.write(writes)
    assert Queue(node.store, node.limits).digest() == node.queue.digest()


def test_memory_grows_with_the_tasks_in_use_and_not_with_the_backlog():
    node = Node(Limits(head_entries_max=50))
    for _ in range(20):
        node.put(100)
        node.collect()
    state = node.queue._state
    assert node.resident() <= 50
    assert state.resident_bytes == 4 * node.resident()
    (taken,) = node.do(Take(["mail"], tasks_max=300))
    assert [task.id for task in taken.tasks] == list(range(1, 301))
    node.collect()
    assert node.resident() <= 350
    node.do(Settle([Ack([task.token for task in taken.tasks])]))
    node.collect()
    assert node.resident() <= 50


def test_payloads_in_memory_are_limited():
    node = Node(Limits(resident_bytes_max=1_000))
    body = b"x" * 2_000
    node.do(Put("mail", [NewTask(body, len(body)) for _ in range(50)]))
    node.collect()
    assert node.queue._state.resident_bytes <= 3_000
    (taken,) = node.do(Take(["mail"], tasks_max=50, bytes_max=10**6))
    node.collect()
    assert node.queue._state.resident_bytes == 0, "long content of taken tasks stays in the store"
    assert all(view.body == body for view in node.queue.list_tasks("mail", (), 0, 99))
    node.do(Settle([Release([task.token for task in taken.tasks])]))
    (again,) = node.do(Take(["mail"], tasks_max=50, bytes_max=10**6))
    assert [task.body for task in again.tasks] == [body] * 50
    node.do(Settle([Ack([task.token for task in again.tasks])]))
    node.collect()
    assert {key[:1] for key in node.store.pairs} == {b"m", b"u", b"f"}


def test_opening_does_not_read_the_backlog():
    node = Node()
    node.put(500, ttl_ms=10**6)
    node.collect()

    class Counting(MemoryStore):
        reads = 0

        def get(self, key):
            self.reads += 1
            return super().get(key)

        def scan(self, start, stop):
            for pair in super().scan(start, stop):
                self.reads += 1
                yield pair

    store = Counting(node.store.pairs)
    queue = Queue(store, Limits(head_entries_max=10))
    assert store.reads < 10
    (taken,) = queue.apply(node.index + 1, 1_000, [Take(["mail"])])
    assert [task.id for task in taken.tasks] == [1]
    assert store.reads < 30


def test_deadlines_fire_in_limited_steps():
    """The leader proposes entries as long as the next deadline is in the past."""
    node = Node(Limits(steps_alone_max=10, steps_beside_max=10, steps_max=10))
    node.put(25, delay_ms=5)
    assert node.queue.next_deadline_ms() == 1_005
    states = []
    for _ in range(4):
        node.do(now_ms=2_000)
        ready = node.queue.list_tasks("mail", (State.READY,), 0, 99)
        states.append((len(ready), node.queue.next_deadline_ms()))
    assert states == [(10, 1_005), (20, 1_005), (25, None), (25, None)]


def test_deadlines_fire_in_order_of_time_then_kind_then_id():
    node = Node()
    node.put(2, delay_ms=50)
    node.put(2, ttl_ms=50)
    node.put(1, delay_ms=40)
    node.do(Take(["mail"], ttr_ms=50))
    node.do(now_ms=5_000)
    events = [(event.kind, event.task_id) for _, event in node.queue.feed.events(0, 6, 99)]
    assert [(int(kind), task_id) for kind, task_id in events] == [
        (9, 5),
        (9, 1),
        (9, 2),
        (10, 3),
        (11, 3),
        (11, 4),
    ]


def test_a_session_holds_at_most_its_limit():
    node = Node(Limits(session_taken_max=3))
    node.put(5)
    node.do(OpenSession("s"))
    (first,) = node.do(Take(["mail"], "s", tasks_max=2))
    (second,) = node.do(Take(["mail"], "s", tasks_max=2))
    (third,) = node.do(Take(["mail"], "s"), now_ms=1_000)
    assert [len(result.tasks) for result in (first, second, third)] == [2, 1, 0]
    assert len(node.queue.lease_tokens("s")) == 3
    (chosen,) = node.do(Take(["mail"], "s", task_id=5))
    assert chosen.tasks == []


def test_tubes_and_sessions_are_limited():
    node = Node(Limits(tubes_max=1, sessions_max=1))
    results = node.do(
        CreateTube("b", TubeKind.FIFO, TubeOptions()), OpenSession("s"), OpenSession("t")
    )
    reasons = [result.reason if isinstance(result, Refusal) else None for result in results]
    assert reasons == [Reason.LIMIT_REACHED, None, Reason.LIMIT_REACHED]


def test_ready_tubes_are_those_with_takeable_tasks():
    node = Node()
    paused = TubeOptions(take_paused=True)
    node.do(CreateTube("still", TubeKind.FIFO, paused), Put("still", [NewTask(b"", 0)]))
    assert node.queue.ready_tubes() == []
    node.put(1, priority=5)
    assert node.queue.ready_tubes() == ["mail"]
    assert not node.queue.has_ready("nothing")
    node.do(Take(["mail"]))
    assert node.queue.ready_tubes() == []


def test_commands_name_the_tubes_that_they_may_make_ready():
    node = Node()
    node.do(CreateTube("news", TubeKind.FIFOTTL, TubeOptions()), OpenSession("s", ttr_ms=500))
    node.put(2)
    node.do(Take(["mail"], "s"))
    node.do(Put("news", [NewTask(b"", 0, delay_ms=100)]))
    asked = node.queue.could_be_ready
    assert asked([Put("other", []), Kick("news"), ReleaseAll("x")], 1_000) == {
        "other",
        "news",
        "x",
    }
    assert asked([Settle([Release([1])])], 1_000) == {"mail"}
    assert asked([Settle([Ack([1]), Release([9])])], 1_000) == set()
    assert asked([CloseSession("s")], 1_000) == {"mail"}
    assert asked([AttachSession("s", attached=False)], 1_000) == {"mail"}
    assert asked([AttachSession("s", attached=True)], 1_000) == set()
    assert asked([], 1_099) == set()
    assert asked([], 1_100) == {"news"}
    assert asked([], 1_500) == {"news", "mail"}


def test_equal_entries_give_equal_states_whenever_writes_are_collected():
    """The digest does not depend on the tasks in memory or on the batches of writes."""
    small = Limits(head_entries_max=2, resident_bytes_max=1)
    stores = [MemoryStore(), MemoryStore(), MemoryStore()]
    queues = [Queue(stores[0], Limits()), Queue(stores[1], small), Queue(stores[2], small)]
    entries = [
        (Startup(1, 0, "feed", 2), CreateTube("mail", TubeKind.FIFOTTL, TubeOptions())),
        (OpenSession("s"), Put("mail", [NewTask(b"x" * 1_500, 1_500) for _ in range(9)])),
        (Take(["mail"], "s", tasks_max=4, request_id="t"), Bury("mail", ByIds([6, 7]))),
        (Settle([Ack([1]), Release([2], delay_ms=7)], request_id="a"), Kick("mail")),
        (TruncateTube("mail"), Put("mail", [NewTask(b"", 0, ttl_ms=3)])),
        (),
    ]
    for index, entry in enumerate(entries, 1):
        results = [queue.apply(index, index * 5, entry) for queue in queues]
        assert repr(results[0]) == repr(results[1]) == repr(results[2])
        stores[1].write(queues[1].collect_writes())
        stores[2].write(queues[2].collect_writes())
        queues[2] = Queue(stores[2], small)
        assert len({queue.digest() for queue in queues}) == 1


def test_different_states_have_different_digests():
    digests = set()
    for entry in ([], [Put("mail", [NewTask(b"", 0)])], [Put("mail", [NewTask(b"a", 0)])]):
        node = Node()
        node.do(*entry)
        digests.add(node.queue.digest())
    assert len(digests) == 3


def test_negative_times_count_as_zero():
    """The API refuses negative times.

    The queue must store a negative time that gets through, and end the task at once.
    """
    node = Node()
    node.put(1, delay_ms=-5, ttr_ms=-5)
    node.put(1, ttl_ms=-5)
    (taken,) = node.do(Take(["mail"], tasks_max=9))
    assert [(task.id, task.ttr_ms, task.lease_until_ms) for task in taken.tasks] == [(1, 0, 1_000)]
    node.collect()
    assert Queue(node.store, node.limits).digest() == node.queue.digest()
