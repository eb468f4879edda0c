"""Sets of tasks: the stored members are the current ones after any sequence of changes."""

import pytest

from taskraft_service.queue.store.indexes import FIRST, TaskSetIndex
from taskraft_service.queue.store.keys import MEMBER
from tests.service.queue.memory_store import MemoryStore

ONE, TWO = (1, 1), (1, 2)


@pytest.fixture
def store():
    return MemoryStore()


def written(store, members):
    """Return the members after a batch of writes, as the next start finds them."""
    writes = []
    members.collect(writes)
    store.write(writes)
    return list(TaskSetIndex(store, MEMBER).after(7, FIRST))


@pytest.mark.parametrize(
    "changes", [["discard"], ["discard", "add", "discard"], ["discard", "discard"]]
)
def test_a_stored_member_that_is_finally_discarded_is_gone(store, changes):
    members = TaskSetIndex(store, MEMBER)
    members.add(7, ONE)
    assert written(store, members) == [ONE]
    for change in changes:
        getattr(members, change)(7, ONE)
    assert list(members.after(7, FIRST)) == []
    assert written(store, members) == []


def test_a_stored_member_that_is_discarded_and_added_is_there(store):
    members = TaskSetIndex(store, MEMBER)
    members.add(7, ONE)
    members.add(7, TWO)
    written(store, members)
    members.discard(7, ONE)
    members.add(7, ONE)
    assert list(members.after(7, FIRST)) == [ONE, TWO]
    assert list(members.after(7, ONE)) == [TWO]
    assert list(members.keys()) == list(TaskSetIndex(store, MEMBER).keys())
    assert written(store, members) == [ONE, TWO]


def test_a_member_added_and_discarded_between_batches_is_never_written(store):
    members = TaskSetIndex(store, MEMBER)
    members.add(7, ONE)
    members.discard(7, ONE)
    writes = []
    members.collect(writes)
    assert writes == []


def test_discarding_a_missing_member_changes_nothing(store):
    members = TaskSetIndex(store, MEMBER)
    members.discard(7, ONE)
    members.discard(7, ONE)
    members.add(8, ONE)
    assert written(store, members) == []
    assert list(TaskSetIndex(store, MEMBER).after(8, FIRST)) == [ONE]
