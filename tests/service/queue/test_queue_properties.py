"""The queue behaves as the naive one, whatever is in memory and whenever it is written."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from service.queue.commands import (
    FOREVER_MS,
    Ack,
    AttachSession,
    Bury,
    BuryTaken,
    ByFilter,
    ByIds,
    Cancel,
    CloseSession,
    CreateTube,
    Delete,
    DropTube,
    Exhausted,
    Failure,
    ItemRefusal,
    Keep,
    KeepSessions,
    Kick,
    NewTask,
    OnAck,
    OpenSession,
    Position,
    Progress,
    Put,
    Refusal,
    Reject,
    Release,
    ReleaseAll,
    Restart,
    RetryPolicy,
    Settle,
    Snatch,
    Startup,
    State,
    Switch,
    Take,
    TaskUpdate,
    Touch,
    TruncateTube,
    TtlPolicy,
    TtlScope,
    TubeKind,
    TubeOptions,
)
from service.queue.commands.filter import (
    AgeField,
    AgeIs,
    Disjunction,
    Negation,
    NumberField,
    NumberIs,
    Relation,
    StateIs,
)
from service.queue.editor import Edited
from service.queue.limits import Limits
from service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore
from tests.service.queue.naive_queue import NaiveQueue

LIMITS = Limits(
    head_entries_max=3,
    resident_bytes_max=40,
    deadlines_per_entry_max=3,
    removals_per_entry_max=4,
    subqueue_entries_max=2,
    read_tasks_max=2,
    ahead_tasks_max=3,
    subqueues_max=2,
    selector_scan_max=5,
    feed_chunk_rows_max=5,
)
SPANS = st.sampled_from((0, 1, 10, 25, 60, 200, FOREVER_MS, FOREVER_MS * 100))
PASSED = st.sampled_from((0, 0, 1, 5, 20, 70))
WISHES = st.none() | SPANS
TUBES = st.sampled_from(
    ("mail", "plain", "high", "temp", "kept", "retained", "tried", "tried", "dead", "slow", "few")
)
IDS = st.integers(1, 14)
TOKENS = st.lists(st.integers(1, 16), max_size=3)
SESSIONS = st.sampled_from(("session-one", "session-two", "session-three"))
FAILURES = st.none() | st.builds(
    Failure, st.sampled_from(("", "Timeout")), st.just("why"), st.sampled_from((False, False, True))
)
UPDATES = st.none() | st.builds(
    TaskUpdate,
    content=st.sampled_from((b"", b"new", b"n" * 2_000)),
    priority=st.none() | st.integers(-3, 3),
    ttl_ms=WISHES,
    ttr_ms=WISHES,
)
POLICIES = st.builds(
    RetryPolicy,
    attempts_max=st.sampled_from((0, 1, 2)),
    backoff_ms=st.sampled_from((0, 10)),
    factor_percent=st.sampled_from((100, 200)),
    backoff_ms_max=st.sampled_from((15, 1_000)),
    exhausted=st.sampled_from(Exhausted),
    position=st.sampled_from(Position),
)
NEW_TASKS = st.builds(
    lambda body, **wishes: NewTask(body, len(body), **wishes),
    body=st.sampled_from((b"", b"small", b"x" * 30, b"y" * 1500)),
    priority=st.none() | st.integers(-2, 2),
    delay_ms=st.just(None) | WISHES,
    ttl_ms=st.just(None) | WISHES,
    ttr_ms=st.just(None) | WISHES,
    visible_at_ms=st.just(None) | st.integers(0, 300),
    type=st.sampled_from(("", "a", "b")),
    position=st.sampled_from((Position.IN_ORDER, *Position)),
    retry=st.none() | st.none() | POLICIES,
)
RELEASES = st.builds(
    Release,
    TOKENS,
    delay_ms=st.none() | st.just(0) | SPANS,
    ttl_policy=st.none() | st.sampled_from(TtlPolicy),
    ttl_ms=WISHES,
    position=st.sampled_from(Position),
    uncounted=st.booleans(),
    failure=FAILURES,
    move_to=st.sampled_from(("", "")) | TUBES,
    update=UPDATES,
)
SETTLEMENTS = st.one_of(
    st.builds(Ack, TOKENS),
    st.builds(
        Ack,
        TOKENS,
        st.sampled_from((None, b"", b"result")),
        st.sampled_from(("", "text/plain")),
        st.sampled_from(Keep),
        WISHES,
        UPDATES,
    ),
    RELEASES,
    RELEASES,
    st.builds(BuryTaken, TOKENS, FAILURES, UPDATES),
    st.builds(Reject, TOKENS, FAILURES),
    st.builds(
        Touch, TOKENS, SPANS, st.booleans(), st.none() | st.just(Progress(50, "half a percent"))
    ),
)
TAKES = st.builds(
    Take,
    st.lists(TUBES, min_size=1, max_size=3, unique=True),
    st.just("") | SESSIONS,
    st.integers(0, 5),
    st.sampled_from((0, 30, 2000, 10**6)),
    ttr_ms=st.just(None) | WISHES,
    types=st.sampled_from(((), (), ("a",), ("a", "b"))),
    priority_bound=st.none() | st.none() | st.integers(-1, 1),
)
CHOSEN_TAKES = st.builds(
    lambda tube, session, chosen: Take([tube], session, task_id=chosen),
    TUBES,
    st.just("") | SESSIONS,
    IDS,
)
DELAYS = st.sampled_from((0, 0, 10))
FILTERS = st.one_of(
    st.none(),
    st.builds(StateIs, st.sampled_from((State.READY, State.TAKEN, State.BURIED, State.DONE))),
    st.builds(NumberIs, st.just(NumberField.ATTEMPT), st.just(Relation.ABOVE), st.integers(0, 1)),
    st.builds(AgeIs, st.just(AgeField.AGE), st.just(Relation.AT_LEAST), st.sampled_from((1, 20))),
)
SELECTORS = st.one_of(
    st.builds(ByIds, st.lists(IDS, min_size=1, max_size=4)),
    st.builds(ByFilter, FILTERS, st.integers(1, 4), st.sampled_from((0, 0, 3))),
    st.builds(
        ByFilter,
        st.builds(Disjunction, st.tuples(FILTERS, st.builds(Negation, FILTERS))) | FILTERS,
        st.just(2),
    ),
)
COMMANDS = st.one_of(
    st.builds(Put, TUBES, st.lists(NEW_TASKS, max_size=4), st.booleans()),
    st.builds(Put, TUBES, st.lists(NEW_TASKS, max_size=9)),
    TAKES,
    TAKES,
    CHOSEN_TAKES,
    st.builds(Settle, st.lists(SETTLEMENTS, max_size=3), st.booleans()),
    st.builds(Settle, st.lists(SETTLEMENTS, max_size=3)),
    st.builds(Kick, TUBES, st.integers(0, 4), st.none() | SELECTORS, DELAYS, update=UPDATES),
    st.builds(Bury, TUBES, SELECTORS, FAILURES),
    st.builds(Delete, TUBES, SELECTORS),
    st.builds(Snatch, TUBES, SELECTORS, DELAYS),
    st.builds(Restart, TUBES, SELECTORS, DELAYS),
    st.builds(
        Switch,
        TUBES,
        SELECTORS,
        st.sampled_from((State.READY, State.BURIED, State.DONE, State.DELAYED, State.ZOMBIE)),
        st.sampled_from((5, 20)),
    ),
    st.builds(Cancel, TUBES, SELECTORS),
    st.builds(ReleaseAll, TUBES),
    st.builds(OpenSession, SESSIONS, st.sampled_from(("", "name")), SPANS),
    st.builds(KeepSessions, st.lists(SESSIONS, max_size=3)),
    st.builds(AttachSession, SESSIONS, st.booleans()),
    st.builds(CloseSession, SESSIONS, st.booleans()),
    st.builds(TruncateTube, TUBES),
    st.builds(DropTube, st.just("temp"), st.booleans()),
    st.builds(CreateTube, st.just("temp"), st.just(TubeKind.FIFOTTL), st.just(TubeOptions())),
    st.builds(Startup, st.just(1), st.sampled_from((0, 50))),
)


@st.composite
def any_command(draw):
    """Draw a command; a strategy whose description is short."""
    return draw(COMMANDS)


OPENING = (
    Startup(1, 0, "feed", 3),
    CreateTube("mail", TubeKind.FIFOTTL, TubeOptions()),
    CreateTube("plain", TubeKind.FIFO, TubeOptions()),
    CreateTube(
        "tried",
        TubeKind.FIFOTTL,
        TubeOptions(
            retry=RetryPolicy(2, 10, exhausted=Exhausted.DEAD_LETTER, position=Position.BACK),
            dead_letter_tube="dead",
            ttl_scope=TtlScope.ALL,
            ttl_ms=60,
            ttr_ms=20,
        ),
    ),
    CreateTube(
        "dead",
        TubeKind.FIFOTTL,
        TubeOptions(
            ttl_scope=TtlScope.READY_ONLY,
            ttl_policy=TtlPolicy.KEEP_DEADLINE,
            priority_min=-2,
            priority_max=2,
            buried_max=2,
            capacity_tasks=4,
            capacity_bytes=3_100,
        ),
    ),
    CreateTube("slow", TubeKind.FIFOTTL, TubeOptions(rate_per_second=40, rate_burst=2)),
    CreateTube("few", TubeKind.FIFOTTL, TubeOptions(concurrency=2, rate_per_second=70)),
    CreateTube("kept", TubeKind.FIFOTTL, TubeOptions(on_ack=OnAck.KEEP)),
    CreateTube("retained", TubeKind.FIFO, TubeOptions(on_ack=OnAck.RETAIN, retain_ms=20)),
    CreateTube("high", TubeKind.FIFOTTL, TubeOptions(True, 1, 5, 150, 30)),
    OpenSession("session-one", "", 100),
)


def plain(result):
    """Return a result with refusals cut down to what the model says of them."""
    if isinstance(result, Refusal):
        return result.reason
    if not hasattr(result, "refused"):
        return result
    parts = {name: getattr(result, name) for name in result.__slots__}
    parts = {
        name: list(part) if isinstance(part, (list, tuple, range)) else part
        for name, part in parts.items()
    }
    parts["refused"] = [
        (item.item, item.refusal.reason) if isinstance(item, ItemRefusal) else item
        for item in parts["refused"]
    ]
    return type(result)(**parts)


def replaced(_body, changes):
    """Take the changes for the new content: to the queue, content is bytes."""
    return Edited(changes, len(changes))


def indexes(tube):
    """Return the ordered indexes of a tube."""
    ready = tube.ready
    if not ready.counts_leases:
        return [ready._index, tube.buried]
    subqueues = [subqueue.order for subqueue in ready._subqueues.values() if subqueue.order]
    return [ready._offers, *subqueues, tube.buried]


class QueueMachine(RuleBasedStateMachine):
    """Both queues get the same entries; the real one is collected and reopened at random points."""

    def __init__(self):
        super().__init__()
        self.store = MemoryStore()
        self.queue = Queue(self.store, LIMITS, editor=replaced)
        self.model = NaiveQueue(LIMITS)
        self.index = 0
        self.now = 0

    @initialize()
    def open(self):
        self.apply(5, OPENING)

    @rule(passed=PASSED, commands=st.lists(any_command(), max_size=4))
    def entry(self, passed, commands):
        self.apply(passed, commands)

    def apply(self, passed, commands):
        self.index += 1
        self.now += passed
        results = self.queue.apply(self.index, self.now, commands)
        expected = self.model.apply(self.index, self.now, commands)
        assert [plain(result) for result in results] == [plain(result) for result in expected]

    @rule()
    def collect(self):
        """After it, the indexes remember nothing of what the store did not know."""
        self.store.write(self.queue.collect_writes())
        ledger = self.queue._ledger
        orders = [index for tube in ledger.tubes.values() for index in indexes(tube)]
        assert not any(tube.tasks for tube, _ in ledger.removals.values())
        for index in (ledger.timers, *orders):
            assert not index._added
            assert not index._removed

    @rule()
    def read_ahead(self):
        """It may happen at any time, and changes nothing."""
        self.queue.read_ahead()

    @rule()
    def crash_and_reopen(self):
        """What is in the store after a collection is the whole state."""
        digest = self.queue.digest()
        self.collect()
        assert self.queue.digest() == digest
        self.store = self.store.copy()
        self.queue = Queue(self.store, LIMITS, editor=replaced)
        assert self.queue.digest() == digest

    @invariant()
    def shows_the_same(self):
        for tube in self.model.tubes:
            name = tube["name"]
            tasks = sorted(
                (task for task in self.model.tasks if task["tube"] is tube),
                key=lambda task: task["id"],
            )
            views = [self.model.view(task) for task in tasks]
            assert self.queue.list_tasks(name, (), 0, 1_000) == views
            (statistics,) = self.queue.statistics([name])
            for state, count in statistics.states.items():
                assert count == sum(view.state is state for view in views)
            assert statistics.payload_bytes == sum(len(view.body) for view in views)
            takeable = min(len(self.model.offers(tube)), self.model.takeable(tube))
            assert self.queue.has_ready(name) == (takeable > 0)
            assert self.queue.ready_count(name) == takeable
        sessions = sorted(self.model.sessions, key=lambda session: session["id"])
        views = [self.model.session_view(session) for session in sessions]
        assert self.queue.sessions() == views

    @invariant()
    def has_the_same_deadline(self):
        deadlines = self.model.deadlines()
        expected = deadlines[0][0] if deadlines else None
        if self.model.ruins:
            assert self.queue.next_deadline_ms() == self.now
        else:
            assert self.queue.next_deadline_ms() == expected

    @invariant()
    def tells_the_same_events(self):
        found = []
        for part in self.queue.feed.views():
            seqs = []
            for seq, event in self.queue.feed.events(part.partition, 0, part.high_seq):
                seqs.append(seq)
                found.append(event)
            assert seqs == list(range(part.high_seq))
        found.sort(key=lambda event: (event.revision, event.place))
        told = [
            (
                event.revision,
                event.at_ms,
                event.tube,
                event.task_id,
                event.kind,
                event.from_state,
                event.to_state,
                event.attempt,
                event.priority,
                event.created_ms,
                event.since_ms,
                event.session,
                event.reason,
                event.type,
            )
            for event in found
        ]
        assert told == self.model.events

    @invariant()
    def memory_follows_the_work(self):
        ledger = self.queue._ledger
        resident = [task for tube in ledger.tubes.values() for task in tube.tasks.values()]
        resident += [task for tube, _ in ledger.removals.values() for task in tube.tasks.values()]
        assert ledger.resident_bytes == sum(len(task.body or b"") for task in resident)


SETTINGS = settings(
    max_examples=150,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
QueueMachine.TestCase.settings = SETTINGS
TestQueueAgainstTheNaiveOne = QueueMachine.TestCase
