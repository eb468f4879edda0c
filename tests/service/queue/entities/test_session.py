"""A session is stored and read back unchanged."""

import pytest

from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore


@pytest.mark.parametrize("owner", ["", "billing", "b" * 64])
@pytest.mark.parametrize("name", ["", "näme"])
def test_a_session_keeps_its_name_and_owner_in_the_store(owner, name):
    store = MemoryStore()
    queue = Queue(store, Limits())
    queue.apply(1, 5, [OpenSession("id", name, 60_000, owner=owner)])
    store.write(queue.collect_writes())
    again = Queue(store, Limits())
    assert again.session("id") == queue.session("id")
    assert (again.session("id").owner, again.session("id").name) == (owner, name)
    assert again.digest() == queue.digest()


def test_the_owner_of_a_session_is_part_of_the_digest():
    queues = [Queue(MemoryStore(), Limits()) for _ in range(2)]
    for queue, owner in zip(queues, ("a", "b"), strict=True):
        queue.apply(1, 5, [OpenSession("id", owner=owner)])
    assert queues[0].digest() != queues[1].digest()
