"""The queue equals the naive queue, with any tasks in memory and any batches of writes."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from taskraft_service.queue.entities.new_task import NewTask, OnConflict
from taskraft_service.queue.entities.refusal import ItemRefusal, Reason, Refusal
from taskraft_service.queue.entities.retry_policy import Exhausted, Position, RetryPolicy
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_options import (
    OnAck,
    TtlPolicy,
    TtlScope,
    TubeKind,
    TubeOptions,
)
from taskraft_service.queue.entities.tube_profiles import PROFILES, defaults_of
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.batch import BatchResult, ExecuteBatch
from taskraft_service.queue.operations.groups import GroupResult
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.schedules import ScheduleResult
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.take import TakeResult
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.content_work import Edited
from taskraft_service.queue.store.keys import (
    INSIDE_TUBES,
    READY_ORDER,
    TYPED_ORDER,
    WAITING_ORDER,
    ready_key,
    subqueue_prefix,
    typed_prefix,
    waiting_key,
)
from tests.service.queue.entities.test_tube_driver import Newest
from tests.service.queue.invariants import checking_after_each_operation
from tests.service.queue.memory_store import MemoryStore
from tests.service.queue.model.counting import shown
from tests.service.queue.model.queue import NaiveQueue
from tests.service.queue.random_commands import PASSED, any_command, common_command
from tests.service.queue.targeting import targeted

LIMITS = Limits(
    head_entries_max=3,
    evicted_max=2,
    resident_bytes_max=40,
    steps_alone_max=4,
    steps_beside_max=3,
    steps_max=5,
    records_forgotten_max=3,
    subqueue_entries_max=2,
    read_tasks_max=2,
    ahead_tasks_max=3,
    subqueues_max=2,
    type_entries_max=2,
    types_max=1,
    selector_scan_max=5,
    feed_chunk_rows_max=5,
    session_ttr_min_ms=40,
)

INTERRUPTIONS = st.sampled_from(("", "", "", "collect", "read_ahead", "restore", "crash"))
"""Actions between two entries."""
NEWEST = Newest()
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
            capacity_tasks=6,
            capacity_bytes=3_100,
        ),
    ),
    CreateTube("room", TubeKind.LIMFIFOTTL, TubeOptions(capacity_tasks=3)),
    CreateTube("slow", TubeKind.FIFOTTL, TubeOptions(rate_per_second=40, rate_burst=2)),
    CreateTube("few", TubeKind.FIFOTTL, TubeOptions(concurrency=2, rate_per_second=70)),
    CreateTube("kept", TubeKind.FIFOTTL, TubeOptions(on_ack=OnAck.KEEP, dead_letter_tube="dead")),
    CreateTube("retained", TubeKind.FIFO, TubeOptions(on_ack=OnAck.RETAIN, retain_ms=20)),
    CreateTube("high", TubeKind.FIFOTTL, TubeOptions(True, 1, 5, 150, 30)),
    OpenSession("session-one", "", 100),
)


OLDER_SYSTEMS = tuple(filter(None, PROFILES))


def entries(common_command, other):
    """Return a strategy of entries: mostly puts, takes and settlements, some of everything."""
    return st.lists(st.one_of(common_command, common_command, other), max_size=4)


def opened_as(profile, command):
    """Return the creation of a tube with the defaults of its profile."""
    if not isinstance(command, CreateTube):
        return command
    rules, own = PROFILES[profile], command.options
    said = {
        field.name: getattr(own, field.name)
        for field in fields(TubeOptions)
        if getattr(own, field.name) != getattr(TubeOptions(), field.name)
    }
    options = replace(defaults_of(rules, command.kind), **said)
    low, high = options.priority_min, options.priority_max
    options = replace(options, priority=min(max(options.priority, low), high))
    return replace(command, options=options, profile=profile)


def anonymous(view):
    """Return a task as it is shown, without the internal numbers of group and key."""
    extras, waiting = view.extras, view.extras.waiting
    if waiting:
        waiting = replace(waiting, open=tuple(replace(one, number=0) for one in waiting.open))
    return replace(view, extras=replace(extras, waiting=waiting, group_number=0, dependents=0))


def reasoned(view):
    """Return a group or schedule as it is shown, with its refusal reduced to the reason."""
    refusal = view.refusal
    return replace(view, refusal=refusal.reason if isinstance(refusal, Refusal) else refusal)


def plain(result):
    """Return a result with refusals reduced to the part that the model has."""
    match result:
        case Refusal():
            return result.reason
        case TakeResult():
            return [anonymous(view) for view in result.tasks]
        case BatchResult():
            return [plain(one) for one in result.results]
        case GroupResult():
            return reasoned(result.group)
        case ScheduleResult():
            return reasoned(result.schedule)
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


def answers(commands, results):
    """Return the answers of commands; of a refused batch, only the fact of the refusal."""
    plain_results = [plain(result) for result in results]
    return [
        "refused" if isinstance(command, ExecuteBatch) and isinstance(one, Reason) else one
        for command, one in zip(commands, plain_results, strict=True)
    ]


def stored_task(spec):
    """Return the task of a spec that a group or schedule stores; the words are its options."""
    words = spec.rstrip(b"!").split()
    return NewTask(
        spec,
        len(spec),
        priority=9 if b"last" in words else None,
        unique_key=("stored",) if b"keyed" in words else (),
        on_conflict=OnConflict.RETURN_EXISTING if b"met" in words else OnConflict.FAIL,
        group="h" if b"grouped" in words else "",
    )


def replaced(_body, changes):
    """Return the changes as the new content; the old content is ignored."""
    return Edited(changes, len(changes))


def indexes(tube):
    """Return the ordered indexes of a tube."""
    ready = tube.ready
    typed = list(ready.types._orders.values())
    if not ready.counts_leases:
        return [ready._index, *typed, tube.buried]
    subqueues = [known.order for known in ready._memory._known.values() if known.order]
    return [ready._offers._index, *subqueues, *typed, tube.buried]


class QueueMachine(RuleBasedStateMachine):
    """Both queues get the same entries; the real queue is collected and reopened at random."""

    profile = ""
    """Profile of all tubes that are created at the start."""
    limits = LIMITS
    opening = OPENING
    applied = 0
    """Number of entries applied by all machines of the class."""

    def __init__(self):
        super().__init__()
        self.store = MemoryStore()
        self.queue = self.opened()
        self.model = NaiveQueue(self.limits, stored_task, {NEWEST.name: NEWEST})
        self.index = 0
        self.now = 0
        self.unwritten = []
        """Entries that the store does not contain yet."""

    def opened(self):
        """Return a queue opened from the store."""
        drivers = {NEWEST.name: NEWEST}
        return Queue(self.store, self.limits, stored_task, replaced, drivers)

    @initialize()
    def open(self):
        self.apply(5, [opened_as(self.profile, command) for command in self.opening])

    commands = entries(common_command(), any_command())

    @rule(data=st.data(), passed=PASSED, then=INTERRUPTIONS)
    def entry(self, data, passed, then):
        self.apply(passed, targeted(self.model, data.draw(self.commands)))
        if then:
            getattr(self, then)()

    def apply(self, passed, commands):
        type(self).applied += 1
        self.index += 1
        self.now += passed
        self.unwritten.append((self.index, self.now, commands))
        with checking_after_each_operation():
            results = self.queue.apply(self.index, self.now, commands)
        expected = self.model.apply(self.index, self.now, commands)
        assert answers(commands, results) == answers(commands, expected)

    def collect(self):
        """Collect: afterwards the indexes contain no entry that the store lacks."""
        self.store.write(self.queue.collect_writes())
        self.unwritten = []
        state = self.queue._state
        orders = [index for tube in state.tubes.values() for index in indexes(tube)]
        for tube, _ in state.removals.values():
            assert not tube.tasks or tube in state.retired, "later entries evict these tasks"
        known = state.tubes.by_number.keys() | state.removals.keys()
        owners = {int.from_bytes(key[1:5], "big") for key in self.keys(*INSIDE_TUBES)}
        assert owners <= known
        for index in (state.timers, *orders):
            assert not index._added
            assert not index._removed
        for tube in state.tubes.values():
            assert len(tube.ready.types._orders) <= self.limits.types_max
            self.check_places(tube)

    def check_places(self, tube):
        """Check that the store has one position of each READY task, and one of its type."""
        ready = [task for task in self.queue._state.tasks(tube) if task.state is State.READY]
        # Takes by type or from sub-queues may read tasks of stored types and sub-queues too.
        # Deadlines may read the tasks of the next deadlines.
        if not tube.has_subqueues and not tube.ready.types.has_any:
            resident = [tube.tasks[task.id] for task in ready if task.id in tube.tasks]
            assert all(task.timer or tube.ready.is_head(task) for task in resident)
        number = tube.number
        offers = [(entry, tube.ready.types.type_of(entry[-1])) for entry in tube.ready.ordered()]
        expected = {ready_key(number, entry) for entry, _ in offers}
        expected |= {
            waiting_key(typed_prefix(number, name), entry) for entry, name in offers if name
        }
        if tube.has_subqueues:
            expected |= {
                waiting_key(subqueue_prefix(number, task.subqueue), task.order) for task in ready
            }
        start = number.to_bytes(4, "big")
        stored = self.keys(READY_ORDER, WAITING_ORDER, TYPED_ORDER)
        assert {key for key in stored if key[1:5] == start} == expected

    def keys(self, *prefixes):
        return [key for key in self.store.pairs if key[:1] in prefixes]

    def read_ahead(self):
        """Read ahead, which may happen at any time and changes nothing."""
        self.queue.look_ahead()

    def restore(self):
        """Reopen after a collection: the store has the whole state, like a snapshot."""
        digest = self.queue.digest()
        self.collect()
        assert self.queue.digest() == digest
        self.store = self.store.copy()
        self.queue = self.opened()
        assert self.queue.digest() == digest

    def crash(self):
        """Crash: unwritten changes are lost, and the entries are replayed."""
        digest = self.queue.digest()
        self.store = self.store.copy()
        self.queue = self.opened()
        for index, now, commands in self.unwritten:
            self.queue.apply(index, now, commands)
        assert self.queue.digest() == digest

    @invariant()
    def shown_state_is_equal(self):
        for tube in self.model.tubes:
            name = tube["name"]
            tasks = sorted(
                (task for task in self.model.tasks if task["tube"] is tube),
                key=lambda task: task["id"],
            )
            views = [self.model.view(task) for task in tasks]
            assert list(map(anonymous, self.queue.list_tasks(name, (), 0, 1_000))) == views
            (statistics,) = self.queue.statistics([name])
            for state, count in statistics.states.items():
                assert count == sum(view.state is state for view in views)
            assert shown(statistics) == tube["counts"].shown()
            assert statistics.payload_bytes == sum(len(view.body) for view in views)
            ready_since = (view.since_ms for view in views if view.state is State.READY)
            assert statistics.oldest_ready_ms == min(ready_since, default=0)
            takeable = min(len(self.model.offers(tube)), self.model.takeable(tube))
            assert self.queue.has_ready(name) == (takeable > 0)
            assert self.queue.ready_count(name) == takeable
        assert self.queue.total_statistics() == self.queue.total_statistics(self.queue.tube_names())
        sessions = sorted(self.model.sessions, key=lambda session: session["id"])
        views = [self.model.session_view(session) for session in sessions]
        assert self.queue.sessions() == views

    @invariant()
    def leases_have_the_same_owners(self):
        tokens = range(1, self.model.token + 2)
        for principal in ("mailer", "rival"):
            strange = {token for token in tokens if self.model.is_strange(token, principal)}
            found = self.queue.strange_leases(
                tokens, lambda _tube: True, lambda owner, own=principal: owner == own
            )
            assert found == strange

    @invariant()
    def the_next_deadline_is_equal(self):
        deadlines = self.model.deadlines()
        expected = deadlines[0][0] if deadlines else None
        model = self.model
        is_sweeping = any(group["sweeping"] for group in model.groups)
        if model.ruins or model.surplus() or model.ends or model.returns or is_sweeping:
            assert self.queue.next_deadline_ms() == self.now
        else:
            assert self.queue.next_deadline_ms() == expected

    @invariant()
    def groups_and_schedules_are_equal(self):
        model = self.model
        groups = sorted(map(model.group_view, model.groups), key=lambda view: view.name)
        assert list(map(reasoned, self.queue.groups())) == groups
        schedules = sorted(map(model.schedule_view, model.schedules), key=lambda view: view.name)
        assert list(map(reasoned, self.queue.schedules())) == schedules

    @invariant()
    def events_are_equal(self):
        found = []
        for part in self.queue.feed.views():
            seqs = []
            for seq, event in self.queue.feed.events(part.partition, 0, part.high_seq):
                seqs.append(seq)
                found.append(event)
            assert part.high_seq == self.model.high(part.partition)
            assert seqs == list(range(self.model.low[part.partition], part.high_seq))
        found.sort(key=lambda event: (event.revision, event.place))
        real_events = [
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
                event.message,
                event.target,
                bool(event.attempt_failed),
                event.type,
                event.outcome,
            )
            for event in found
        ]
        assert real_events == self.model.kept_events()

    @invariant()
    def memory_follows_the_work(self):
        state = self.queue._state
        resident = [task for tube in state.tubes.values() for task in tube.tasks.values()]
        resident += [task for tube, _ in state.removals.values() for task in tube.tasks.values()]
        assert state.resident_bytes == sum(len(task.body or b"") for task in resident)


SETTINGS = settings(
    max_examples=10,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


ENTRIES_MIN = 100
"""Minimum number of entries that one part applies; the usual number is much larger."""


def of_profile(machine, profile):
    """Return the machine with the tubes of a profile."""
    return type(f"{profile}_{machine.__name__}", (machine,), {"profile": profile})


def run_part(machine, part):
    """Run a machine ten times; return how many entries it applied.

    In longer runs Hypothesis derives five of six examples from earlier ones. CI derives its
    examples from the name of the part. With ``--hypothesis-seed``, all parts draw the same
    examples.
    """
    own = type(f"{machine.__name__}{part}", (machine,), {"applied": 0})
    run_state_machine_as_test(own, settings=SETTINGS)
    return own.applied


@pytest.mark.parametrize("part", range(8))
def test_the_queue_behaves_like_the_naive_one(part):
    assert run_part(QueueMachine, part) >= ENTRIES_MIN


@pytest.mark.parametrize("profile", OLDER_SYSTEMS)
def test_a_profile_behaves_like_the_naive_one(profile):
    assert run_part(of_profile(QueueMachine, profile), profile) >= ENTRIES_MIN
