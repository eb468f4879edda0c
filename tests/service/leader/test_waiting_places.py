"""The places of waiting consumers are counted while they are added, and bounded."""

import asyncio

import pytest

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.access.caller import AnonymousCaller
from taskraft_service.api.rpc.request_steps import RequestSteps
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.tasks.consumer_sources import ConsumerSources, check_wait
from taskraft_service.leader import waiters
from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import ConsumerProfile
from taskraft_service.leader.waiting_patterns import SLICE_STEPS
from tests.service.leader.waiting import Board, Consumer


class Named(AnonymousCaller):
    """A caller with a name that may do everything."""

    def __init__(self, name):
        super().__init__()
        self.name = name


class Node:
    """Waiting consumers, and a number of tubes."""

    def __init__(self, tubes):
        self.board = Board(**{f"t{number:05}": 0 for number in range(tubes)})
        self.waiters = Waiters(self.board)

    def wait(self, *patterns, principal=""):
        sources = ConsumerSources([pb.TakeSource(tube=one) for one in patterns], Named(principal))
        check_wait(sources, self.waiters, self.board.tube_names(), RequestSteps())
        consumer = Consumer(*patterns)
        consumer.profile = ConsumerProfile(principal=principal)
        self.waiters.add(consumer)
        return consumer

    def refusal(self, *patterns, principal=""):
        with pytest.raises(CallRefused) as refused:
            self.wait(*patterns, principal=principal)
        assert refused.value.reason == error_pb2.Error.OVERLOADED
        return refused.value.metadata

    @property
    def places(self):
        return len(self.waiters.places.counts)


async def test_tubes_that_were_not_compared_yet_count():
    node = Node(3 * SLICE_STEPS)
    consumer = node.wait("*7")
    assert len(node.waiters.tubes_of(consumer)) < 3 * SLICE_STEPS // 10
    assert node.places == 3 * SLICE_STEPS
    while node.waiters.add_more(consumer):
        assert node.places > len(node.waiters.tubes_of(consumer))
    assert node.places == len(node.waiters.tubes_of(consumer)) == 3 * SLICE_STEPS // 10
    node.waiters.remove(consumer)
    node.waiters.remove(consumer)
    assert node.places == 0


def test_a_tube_that_is_created_adds_a_place():
    node = Node(2)
    consumers = [node.wait("t*", principal="a"), node.wait("*", "other", principal="b")]
    assert node.places == 2 + 3
    node.waiters.expect_ready("t-new", 1)
    node.waiters.claims()
    assert node.places == sum(len(node.waiters.tubes_of(one)) for one in consumers) == 3 + 4
    assert node.waiters.places.counts.count_with(0, "a") == (7, 3)


def test_consumers_that_wait_on_too_many_tubes_are_refused(monkeypatch):
    monkeypatch.setattr(limits, "WAITING_PLACES_MAX", 40)
    monkeypatch.setattr(limits, "WAITING_PLACES_SHARE_MAX", 30)
    node = Node(10)
    rivals = [node.wait("*", principal="rival") for _ in range(3)]
    metadata = {"limit": "waiting_places_share_max", "value": "30", "principal": "rival"}
    assert node.refusal("t00001*", principal="rival") == metadata
    node.wait("*", principal="mailer")
    metadata = {"limit": "waiting_places_max", "value": "40"}
    assert node.refusal("*", principal="mailer") == metadata
    node.wait("t00001", principal="mailer")
    node.waiters.remove(rivals[0])
    node.wait("t00001*", principal="rival")
    assert limits.WAITING_PLACES_SHARE_MAX == limits.WAITING_PLACES_MAX * 3 // 4


async def test_a_consumer_of_many_tubes_leaves_their_wait_queues_in_slices(monkeypatch):
    """The consumer gets no task meanwhile."""
    monkeypatch.setattr(waiters, "LEFT_AT_ONCE", 4)
    monkeypatch.setattr(waiters, "LEFT_DIRECTLY_MAX", 4)
    node = Node(10)
    gone, other = node.wait("*"), node.wait("*", "other")
    node.waiters.claims()
    node.waiters.remove(gone)
    assert node.places == len(node.waiters.tubes_of(other))
    assert not node.waiters.waits_on(gone, "t00003")
    node.waiters.expect_ready("t00003", 2)
    assert [claim.consumer for claim in node.waiters.claims()] == [other]
    turns = 0
    while node.waiters.waiting_count("t00009") > 1:
        await asyncio.sleep(0)
        turns += 1
    assert turns == 3


async def test_consumers_that_are_removed_together_leave_their_wait_queues_in_slices():
    """The consumers wait on fewer tubes each than all may leave in one turn."""
    node = Node(waiters.LEFT_DIRECTLY_MAX + 1)
    gone = [node.wait("*") for _ in range(3 * waiters.LEFT_AT_ONCE // len(node.board.tasks))]
    names = node.waiters.tubes_of(gone[0])
    places = len(gone) * len(names)

    def left():
        return places - sum(node.waiters.waiting_count(name) for name in names)

    for one in gone:
        node.waiters.remove(one)
    slices = [left()]
    while left() < places:
        before = left()
        await asyncio.sleep(0)
        slices.append(left() - before)
    assert slices[0] == 0
    assert max(slices) == waiters.LEFT_AT_ONCE
