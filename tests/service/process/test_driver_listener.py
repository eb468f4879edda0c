"""A node has caught up when it has applied what was committed when it learned of the leader."""

import asyncio
from types import SimpleNamespace

import pytest

from taskraft_replication.core.types import NO_MEMBER, MemberId, RaftRole, SoftState, Term
from taskraft_replication.errors import ReadUnconfirmed, Stopped
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.leader.node_phases import NodePhase, PhaseMachine
from taskraft_service.process import driver_listener
from taskraft_service.process.driver_listener import DriverListener

ME, LEADER, OTHER = MemberId(1), MemberId(2), MemberId(3)
MEMBERS = {number: PeerAddress(number, f"n{number}", "p:1", "c:1") for number in (1, 2, 3)}


class Node:
    """Records requested linearizable reads; the test answers them."""

    def __init__(self):
        self.reads = []

    async def read_index(self):
        self.reads.append(asyncio.get_running_loop().create_future())
        return await self.reads[-1]


class Bench:
    def __init__(self):
        self.phases, self.node = PhaseMachine(), Node()
        self.leadership = LeadershipTracker(self.phases, ME, MEMBERS, SimpleNamespace())
        self.listener = DriverListener(self, lambda: None)

    async def hears_of(self, leader, term):
        self.listener.role_changed(SoftState(leader, RaftRole.FOLLOWER), Term(term))
        await turn()

    async def is_answered(self, error=None):
        if error is None:
            self.node.reads[-1].set_result(7)
        else:
            self.node.reads[-1].set_exception(error)
        await turn()


async def turn():
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def bench(monkeypatch):
    monkeypatch.setattr(driver_listener, "RETRY_SECONDS", 0)
    return Bench()


async def test_a_node_is_waiting_once_it_applied_all_entries_committed_before_it_met_the_leader(
    bench,
):
    await bench.hears_of(LEADER, 1)
    assert bench.phases.phase is NodePhase.INIT
    await bench.is_answered()
    assert bench.phases.phase is NodePhase.WAITING
    assert len(bench.node.reads) == 1


@pytest.mark.parametrize(("leader", "term"), [(LEADER, 1), (LEADER, 2), (OTHER, 2)])
async def test_a_member_that_was_cut_off_catches_up_again(bench, leader, term):
    await bench.hears_of(LEADER, 1)
    await bench.is_answered()
    await bench.hears_of(NO_MEMBER, 1)
    assert len(bench.node.reads) == 1, "there is no leader to ask"
    await bench.hears_of(leader, term)
    assert not bench.leadership.is_caught_up
    assert bench.phases.phase is NodePhase.WAITING
    await bench.is_answered()
    assert bench.leadership.is_caught_up


async def test_a_repeated_report_of_the_same_leader_changes_nothing(bench):
    await bench.hears_of(LEADER, 1)
    await bench.is_answered()
    await bench.hears_of(LEADER, 1)
    assert bench.leadership.is_caught_up


async def test_a_read_index_of_an_earlier_leader_does_not_count(bench):
    await bench.hears_of(LEADER, 1)
    await bench.hears_of(OTHER, 2)
    await bench.is_answered()
    assert bench.phases.phase is NodePhase.INIT
    await bench.is_answered()
    assert bench.phases.phase is NodePhase.WAITING


async def test_a_read_without_an_answer_is_repeated(bench):
    await bench.hears_of(LEADER, 1)
    await bench.is_answered(ReadUnconfirmed("no"))
    assert len(bench.node.reads) == 2
    await bench.is_answered()
    assert bench.phases.phase is NodePhase.WAITING


async def test_no_read_is_repeated_for_a_lost_leader(bench):
    await bench.hears_of(LEADER, 1)
    await bench.hears_of(NO_MEMBER, 1)
    await bench.is_answered(ReadUnconfirmed("no"))
    assert len(bench.node.reads) == 1
    await bench.hears_of(LEADER, 1)
    assert len(bench.node.reads) == 2


async def test_a_stopping_node_sends_no_reads(bench):
    await bench.hears_of(LEADER, 1)
    await bench.is_answered(Stopped("the node is stopping"))
    assert len(bench.node.reads) == 1
    assert bench.phases.phase is NodePhase.INIT


async def test_a_bug_during_catch_up_stops_the_node(bench):
    """A node that waited forever would never serve and would log nothing."""
    heard = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    await bench.hears_of(LEADER, 1)
    await bench.is_answered(KeyError("nobody expected this"))
    assert [type(context["exception"]) for context in heard] == [KeyError]
    assert "handle" in heard[0], "the raised exception stops a node"
