"""The digest covers every part of the state in which replicas must agree, and nothing else."""

import pytest

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.entities.tube_options import TtlScope, TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.feed import CommitCursor
from taskraft_service.queue.operations.groups import CreateGroup, StartGroup
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete
from taskraft_service.queue.operations.leadership import (
    NoteCalls,
    NotedCalls,
    SetWallOffset,
    Startup,
)
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.schedules import CreateSchedule
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import AttachSession, CloseSession, OpenSession
from taskraft_service.queue.operations.settings import Configure
from taskraft_service.queue.operations.settlements import Release, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings
from taskraft_service.queue.state.schedule_registry import Overlap, ScheduleSpec
from taskraft_service.queue.store.keys import TIMER
from tests.service.queue.memory_store import MemoryStore

OPENING = (
    Startup(1, 0, "feed", 2),
    CreateTube("mail", TubeKind.FIFOTTL, TubeOptions()),
    CreateTube("keyed", TubeKind.UTUBETTL, TubeOptions()),
    OpenSession("anna", "anna", 50, labels=(("host", "box-1"), ("pid", "7"))),
    CreateGroup("held"),
    Put("mail", [NewTask(b"a", 1), NewTask(b"b", 1), NewTask(b"c", 1, group="held")]),
    Take(["mail"], "anna"),
)
PLAN = ScheduleSpec("mail", "daily", Overlap.ALLOW, False, b"x")
CHANGES = [
    Put("mail", [NewTask(b"d", 1)]),
    Put("mail", [NewTask(b"d", 1)], request_id="r", request_hash=7),
    Put("keyed", [NewTask(b"", 0, unique_key=("k",))]),
    Take(["mail"], "anna"),
    Take(["mail"]),
    Bury("mail", ByIds([2])),
    Delete("mail", ByIds([2])),
    Settle([Release([1], failure=Failure("Broken"))]),
    OpenSession("bert", "bert", 50),
    OpenSession("bert", "bert", 50, labels=(("pid", "8"),)),
    AttachSession("anna", attached=True),
    CloseSession("anna"),
    CreateGroup("other"),
    StartGroup("held"),
    CreateSchedule("s", PLAN, 9_000),
    CommitCursor("c", "feed", {0: 1}, 100),
    UpdateTube("mail", TubeOptions(priority=1), ["priority"]),
    CreateTube("more", TubeKind.FIFO, TubeOptions()),
    TruncateTube("mail"),
    NoteCalls([NotedCalls("mail", 1, 0, 0)]),
    SetWallOffset(-7),
]


def queue_of(*commands, store=None):
    queue = Queue(store or MemoryStore(), Limits())
    queue.apply(1, 10, OPENING)
    queue.apply(2, 10, commands)
    return queue


@pytest.mark.parametrize("command", CHANGES, ids=lambda command: type(command).__name__)
def test_a_change_changes_the_digest_and_equal_changes_have_equal_digests(command):
    assert queue_of(command).digest() != queue_of().digest()
    assert queue_of(command).digest() == queue_of(command).digest()


@pytest.mark.parametrize("command", CHANGES, ids=lambda command: type(command).__name__)
def test_the_stored_state_has_the_digest_of_the_state_in_memory(command):
    store = MemoryStore()
    queue = queue_of(command, store=store)
    digest = queue.digest()
    store.write(queue.collect_writes())
    assert queue.digest() == Queue(store, Limits()).digest() == digest


def test_the_numbers_of_the_clock_are_stored_and_never_go_back():
    store = MemoryStore()
    queue = queue_of(Startup(1, 0, clock_epoch=3, clock_term=5), store=store)
    queue.apply(3, 10, [Startup(2, 0)])
    store.write(queue.collect_writes())
    restored = Queue(store, Limits())
    assert (restored.clock_epoch, restored.clock_term) == (3, 5)
    others = [queue_of(Startup(1, 0, clock_term=term)).digest() for term in (4, 5)]
    assert others[0] != others[1]


@pytest.mark.parametrize("scope", TtlScope)
@pytest.mark.parametrize("empties", [TruncateTube("short"), DropTube("short", force=True)])
def test_a_restart_during_the_cleanup_of_a_tube_leaves_no_timers(empties, scope):
    """Which timer a task has depends on an option of its tube, which no longer exists."""
    store, limits = MemoryStore(), Limits(steps_alone_max=1, steps_beside_max=1, steps_max=1)
    queue = Queue(store, limits)
    options = TubeOptions(ttl_scope=scope)
    tasks = [NewTask(b"", 0, ttl_ms=30, ttr_ms=50) for _ in range(4)]
    queue.apply(1, 10, [CreateTube("short", TubeKind.FIFOTTL, options), Put("short", tasks)])
    queue.apply(2, 10, [Take(["short"], tasks_max=2), Bury("short", ByIds([3]))])
    store.write(queue.collect_writes())
    queue.apply(3, 10, [empties])
    store.write(queue.collect_writes())
    restored = Queue(store.copy(), limits)
    for index in range(4, 9):
        for one in (queue, restored):
            one.apply(index, 10, [])
            one._state.store.write(one.collect_writes())
    timers = [key for key in restored._state.store.pairs if key[:1] == TIMER]
    assert timers == []
    assert queue.next_deadline_ms() == restored.next_deadline_ms() is None


@pytest.mark.parametrize("command", CHANGES, ids=lambda command: type(command).__name__)
def test_written_changes_are_not_written_again(command):
    """A second batch without an entry in between has only the records that every batch has."""
    store = MemoryStore()
    queue = queue_of(command, store=store)
    store.write(queue.collect_writes())
    before = dict(store.pairs)
    assert len([*queue.collect_writes()]) <= 1
    assert store.pairs == before


def test_every_part_of_the_state_is_in_the_digest():
    """A missing part would go unnoticed if another part changed at the same time."""
    queue = queue_of(
        Configure(ReplicatedSettings(failover_grace_ms=7)),
        CreateSchedule("s", PLAN, 9_000),
        CommitCursor("c", "feed", {0: 1}, 100),
        Put("keyed", [NewTask(b"", 0, unique_key=("k",))]),
        Put("mail", [NewTask(b"", 0)], request_id="r", request_hash=7),
    )
    state = queue._state
    digest = queue.digest()

    def changed(change, undo):
        change()
        is_seen = queue.digest() != digest
        undo()
        assert queue.digest() == digest
        return is_seen

    schedule, group = state.schedules.get("s"), state.groups.get("held")
    consumer, session = state.consumers.get("c"), state.sessions["anna"]
    for thing, name in (
        (schedule, "left_out"),
        (group, "failed"),
        (consumer, "idle_ttl_ms"),
        (session, "ttr_ms"),
        (state.failures, "following"),
        (state.groups, "number"),
        (state.tubes["mail"], "share"),
        (state, "token"),
    ):
        before = getattr(thing, name)
        assert changed(
            lambda thing=thing, name=name, before=before: setattr(thing, name, before + 1),
            lambda thing=thing, name=name, before=before: setattr(thing, name, before),
        ), name
    held = dict(session.held)
    assert changed(session.held.clear, lambda: session.held.update(held)), "the HELD tasks"
