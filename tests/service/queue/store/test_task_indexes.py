"""Members of numbered sets: what is written is what is there, however often they come and go."""

import pytest

from taskraft_service.queue.store.keys import MEMBER
from taskraft_service.queue.store.task_indexes import FIRST, TaskSetIndex
from tests.service.queue.memory_store import MemoryStore

ONE, TWO = (1, 1), (1, 2)


@pytest.fixture
def store():
    return MemoryStore()


def written(store, members):
    """Return the members after a batch of writes, as they are found on the next start."""
    writes = []
    members.collect(writes)
    store.write(writes)
    return list(TaskSetIndex(store, MEMBER).after(7, FIRST))


@pytest.mark.parametrize(
    "changes", [["discard"], ["discard", "add", "discard"], ["discard", "discard"]]
)
def test_a_stored_member_that_goes_in_the_end_is_gone(store, changes):
    members = TaskSetIndex(store, MEMBER)
    members.add(7, ONE)
    assert written(store, members) == [ONE]
    for change in changes:
        getattr(members, change)(7, ONE)
    assert list(members.after(7, FIRST)) == []
    assert written(store, members) == []


def test_a_stored_member_that_goes_and_comes_is_there(store):
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


def test_a_member_that_comes_and_goes_in_between_is_never_written(store):
    members = TaskSetIndex(store, MEMBER)
    members.add(7, ONE)
    members.discard(7, ONE)
    writes = []
    members.collect(writes)
    assert writes == []


def test_a_member_is_discarded_where_it_is_not(store):
    members = TaskSetIndex(store, MEMBER)
    members.discard(7, ONE)
    members.discard(7, ONE)
    members.add(8, ONE)
    assert written(store, members) == []
    assert list(TaskSetIndex(store, MEMBER).after(8, FIRST)) == [ONE]
