"""The leases of a session are listed without a look at each of them."""

import pytest

from taskraft_service.machine.queue_locator import QueueLocator, origin_of
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.cancel import Cancel
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.settlements import Ack, Release, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, TruncateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.queue_state import BEGINNING
from tests.service.queue.memory_store import MemoryStore

LEASES = 100


class UnreadLeases(dict):
    """Leases of a session that refuse to be walked through."""

    def __iter__(self):
        raise AssertionError("each lease of the session was looked at")


class CountedToken(int):
    """A lease token that counts its comparisons."""

    comparisons = 0

    def __lt__(self, other):
        CountedToken.comparisons += 1
        return int(self) < int(other)


class Node:
    """A queue whose session ``anna`` holds ``LEASES`` tasks of the tube ``mail``."""

    def __init__(self, origin=BEGINNING):
        self.store = MemoryStore()
        self.queue = Queue(self.store, Limits(), origin=origin)
        self.index = 0
        self.do(
            Startup(1, 0, "feed", 1),
            CreateTube("mail", TubeKind.FIFOTTL, TubeOptions()),
            OpenSession("anna", "anna", 60_000),
            Put("mail", [NewTask(b"x", 1)] * LEASES),
        )
        taken = self.do(Take(["mail"], "anna", LEASES))[0].tasks
        self.tokens = [task.token for task in taken]

    def do(self, *commands):
        self.index += 1
        results = self.queue.apply(self.index, 1_000, commands)
        self.store.write(self.queue.collect_writes())
        return results

    def cancel(self, *ids):
        """Ask to stop the tasks with these ids; return their leases."""
        self.do(Cancel("mail", ByIds(ids)))
        return [self.tokens[task_id - 1] for task_id in ids]

    @property
    def session(self):
        return self.queue._state.sessions["anna"]


@pytest.fixture
def node():
    return Node()


def test_the_cancelled_leases_are_found_without_a_walk_through_all(node):
    third, first = node.cancel(3, 1)
    node.session.held = UnreadLeases(node.session.held)
    assert node.queue.cancelled("anna", 9) == [third, first]
    assert node.queue.cancelled("anna", 1) == [third]


@pytest.mark.parametrize("action", [Ack, Release])
def test_a_settled_lease_is_cancelled_no_more(node, action):
    first, second = node.cancel(1, 2)
    node.do(Settle([action([first])]))
    assert node.queue.cancelled("anna", 9) == [second]


def test_the_leases_of_a_truncated_tube_are_cancelled_no_more(node):
    assert node.cancel(1)
    node.do(TruncateTube("mail"))
    assert node.queue.cancelled("anna", 9) == []


def test_a_reopened_queue_knows_the_cancelled_leases(node):
    second, first = node.cancel(2, 1)
    node.queue = Queue(node.store, Limits())
    assert node.queue.cancelled("anna", 9) == [first, second]
    node.do(Settle([Ack([first])]))
    assert node.queue.cancelled("anna", 9) == [second]


def test_the_leases_of_all_queues_are_in_order_without_a_comparison(node, monkeypatch):
    temporary = Node(origin_of(1))
    queues = QueueLocator(lambda: node.queue)
    queues.set_temporary(temporary.queue)
    for one in (node, temporary):
        one.session.held = dict.fromkeys(map(CountedToken, one.session.held))
    monkeypatch.setattr(CountedToken, "comparisons", 0)
    tokens = queues.lease_tokens("anna")
    assert CountedToken.comparisons == 0
    assert tokens == sorted([*node.tokens, *temporary.tokens])
