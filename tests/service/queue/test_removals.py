"""Tasks of dropped and truncated tubes are unreachable at once, and removed in steps."""

from __future__ import annotations

import pytest

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.settlements import Ack, Settle, Touch
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.store.keys import INSIDE_TUBES, OUTSIDE_TUBES
from tests.service.queue.test_queue import Node


@pytest.mark.parametrize("collected", ["never", "after the drop", "before and after"])
def test_dropped_tasks_are_removed_in_limited_steps(collected):
    """The tasks are unreachable at once; their events follow in later entries."""
    node = Node(Limits(steps_alone_max=10, steps_beside_max=10, steps_max=10))
    node.put(25, ttl_ms=10)
    node.do(Take(["mail"], tasks_max=3))
    if collected == "before and after":
        node.collect()
    (result,) = node.do(DropTube("mail", force=True))
    assert result.count == 25
    assert node.queue.tubes() == []
    (refusal,) = node.do(Put("mail", [NewTask(b"", 0)]))
    assert refusal.reason is Reason.TUBE_NOT_FOUND
    assert node.queue.next_deadline_ms() == 1_000
    if collected != "never":
        node.collect()
        assert not any(tube.tasks for tube, _ in node.queue._state.removals.values())
        node.queue = Queue(node.store, node.limits)
    node.do(CreateTube("mail", TubeKind.FIFOTTL, TubeOptions()), now_ms=9_000)
    assert node.queue.next_deadline_ms() is None
    node.do(Put("mail", [NewTask(b"", 0)]), now_ms=9_000)
    events = [(event.kind, event.task_id) for _, event in node.queue.feed.events(0, 28, 99)]
    assert events == [*((14, task_id) for task_id in range(1, 26)), (1, 1)]
    node.collect()
    assert sum(key[:1] == b"t" for key in node.store.pairs) == 1
    assert sum(key[:1] in b"rbldy" for key in node.store.pairs) == 1


@pytest.mark.parametrize("collected", [False, True])
def test_tasks_removed_before_their_tube_have_no_second_event(collected):
    """Replicas write at different times, and must have the same events."""
    node = Node(Limits(steps_alone_max=1, steps_beside_max=1, steps_max=1))
    node.put(5)
    node.collect()
    node.do(Delete("mail", ByIds([3])), TruncateTube("mail"))
    if collected:
        digest = node.queue.digest()
        node.collect()
        assert node.queue.digest() == digest
        node.queue = Queue(node.store, node.limits)
    while node.queue.next_deadline_ms() is not None:
        node.do()
    assert [event.task_id for event in events_of_kind(node, 8)] == [3]
    assert [event.task_id for event in events_of_kind(node, 14)] == [1, 2, 4, 5]


@pytest.mark.parametrize("end", [DropTube("mail"), TruncateTube("mail")])
def test_an_emptied_tube_leaves_nothing_in_the_store(end):
    """The last tasks of the tube were removed before, but not yet deleted from the store."""
    node = Node()
    node.put(5, ttl_ms=10_000)
    node.collect()
    node.do(Delete("mail", ByIds([1, 2, 3, 4, 5])), end)
    node.collect()
    assert not any(key[:1] in INSIDE_TUBES + OUTSIDE_TUBES for key in node.store.pairs)


def test_entries_with_commands_remove_less_than_those_without():
    """Clients wait for entries with commands."""
    node = Node(Limits(steps_alone_max=10, steps_beside_max=2, steps_max=2))
    node.put(25)
    node.collect()
    node.do(TruncateTube("mail"))
    assert len(events_of_kind(node, 14)) == 2
    node.put(1)
    assert len(events_of_kind(node, 14)) == 4
    node.do()
    assert len(events_of_kind(node, 14)) == 14
    node.do()
    node.do()
    assert len(events_of_kind(node, 14)) == 25
    assert node.queue.next_deadline_ms() is None


def events_of_kind(node, kind):
    events = node.queue.feed.events(0, 0, 999)
    return [event for _, event in events if event.kind == kind]


@pytest.mark.parametrize("is_reopened", [False, True])
def test_buried_tasks_above_a_lowered_limit_are_removed_in_steps(is_reopened):
    node = Node(Limits(steps_alone_max=3, steps_beside_max=3, steps_max=3))
    node.put(9)
    node.do(Bury("mail", ByIds(list(range(1, 10)))))
    node.do(UpdateTube("mail", TubeOptions(buried_max=1), ["buried_max"]))
    assert len(events_of_kind(node, 8)) == 4, "one more at the end of the entry"
    assert node.queue.next_deadline_ms() == node.queue.now_ms
    if is_reopened:
        node.collect()
        node.queue = Queue(node.store, node.limits)
        assert node.queue.next_deadline_ms() == node.queue.now_ms
    node.do()
    node.do()
    assert [event.task_id for event in events_of_kind(node, 8)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert node.queue.next_deadline_ms() is None
    node.do(UpdateTube("mail", TubeOptions(buried_max=0), ["buried_max"]))
    assert len(events_of_kind(node, 8)) == 8, "0 means no limit"


def test_a_dropped_tube_has_no_buried_tasks_to_remove():
    node = Node(Limits(steps_alone_max=3, steps_beside_max=3, steps_max=3))
    node.put(9)
    node.do(Bury("mail", ByIds(list(range(1, 10)))))
    node.do(UpdateTube("mail", TubeOptions(buried_max=1), ["buried_max"]), DropTube("mail"))
    while node.queue.next_deadline_ms() is not None:
        node.do()
    assert len(events_of_kind(node, 8)) == 3


@pytest.mark.parametrize("end", [DropTube("mail", force=True), TruncateTube("mail")])
@pytest.mark.parametrize("changed", [(), (30,)], ids=["written", "last task changed"])
def test_leases_end_at_once_and_the_tasks_leave_the_memory_in_limited_steps(end, changed):
    node = Node(Limits(evicted_max=4, steps_alone_max=1, steps_beside_max=1, steps_max=1))
    state, session = node.queue._state, "s" * 36
    node.do(OpenSession(session))
    node.put(30)
    node.do(Take(["mail"], session_id=session, tasks_max=30, ttr_ms=10_000))
    node.collect()
    node.do(Settle([Touch([token], increment_ms=9) for token in changed]))
    tube = state.tubes["mail"]
    node.do(end)
    assert len(tube.tasks) == 30 if changed else 26
    assert node.queue.lease_tokens(session) == []
    assert node.queue.lease_count == 1, "the session"
    (answer,) = node.do(Settle([Ack([1])]))
    assert answer.refused[0].refusal.reason is Reason.LEASE_STALE
    while state.removals:
        before = len(tube.tasks)
        node.do()
        assert before - len(tube.tasks) <= 4
        if node.index % 8 == 0:
            digest = node.queue.digest()
            node.collect()
            assert Queue(node.store, node.limits).digest() == node.queue.digest() == digest
    node.collect()
    assert (len(tube.tasks), state.resident_bytes) == (0, 0)
    assert [event.task_id for event in events_of_kind(node, 14)] == [*range(1, 31)]
