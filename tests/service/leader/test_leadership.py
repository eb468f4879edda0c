"""Phases of a node as leadership is won and lost."""

import asyncio

import pytest

from taskraft_replication.core.types import NO_MEMBER, MemberId, RaftRole, SoftState, Term
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.leader.command_submitter import NotProposed
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.leader.node_phases import NodePhase, PhaseMachine

ME, OTHER = MemberId(1), MemberId(2)
MEMBERS = {number: PeerAddress(number, f"n{number}", "p:1", f"c{number}:1") for number in (1, 2)}


class Lead:
    def __init__(self):
        self.begun = []
        self.parted = self.ended = 0

    async def begin(self, term):
        future = asyncio.get_running_loop().create_future()
        self.begun.append(future)
        await future

    async def before_transfer(self):
        self.parted += 1

    def end(self):
        self.ended += 1


class Bench:
    def __init__(self):
        self.phases, self.lead = PhaseMachine(), Lead()
        self.entered = []
        self.phases.listen(self.entered.append)
        self.leadership = LeadershipTracker(self.phases, ME, MEMBERS, self.lead)

    async def says(self, role, leader, term):
        self.leadership.role_changed(SoftState(leader, role), Term(term))
        await turn()

    async def lead_in(self, term):
        await self.says(RaftRole.LEADER, ME, term)
        self.lead.begun[-1].set_result(None)
        await turn()


async def turn():
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def bench():
    return Bench()


async def test_a_leader_serves_when_its_startup_is_applied(bench):
    await bench.says(RaftRole.LEADER, ME, 1)
    assert bench.phases.phase is NodePhase.STARTUP
    bench.lead.begun[0].set_result(None)
    await turn()
    assert bench.leadership.serves
    assert bench.leadership.address == "c1:1"


async def test_a_deposed_leader_ends_and_waits(bench):
    await bench.lead_in(1)
    await bench.says(RaftRole.FOLLOWER, OTHER, 2)
    assert bench.entered[-2:] == [NodePhase.ENDING, NodePhase.WAITING]
    assert bench.lead.ended == 1
    assert bench.leadership.address == "c2:1"


async def test_a_leadership_lost_during_startup_never_serves(bench):
    await bench.says(RaftRole.LEADER, ME, 1)
    await bench.says(RaftRole.FOLLOWER, OTHER, 2)
    assert bench.lead.begun[0].cancelled()
    assert NodePhase.RUNNING not in bench.entered


async def test_a_failed_startup_changes_no_phase(bench):
    await bench.says(RaftRole.LEADER, ME, 1)
    bench.lead.begun[0].set_exception(NotProposed("lost"))
    await turn()
    assert bench.phases.phase is NodePhase.STARTUP


async def test_leading_again_in_a_later_term_starts_again(bench):
    await bench.lead_in(1)
    await bench.says(RaftRole.LEADER, ME, 3)
    assert bench.lead.ended == 1
    assert bench.phases.phase is NodePhase.STARTUP
    bench.lead.begun[0].done()
    bench.lead.begun[1].set_result(None)
    await turn()
    assert bench.leadership.serves


async def test_a_repeated_report_changes_nothing(bench):
    await bench.lead_in(1)
    await bench.says(RaftRole.LEADER, ME, 1)
    assert bench.leadership.serves
    assert len(bench.lead.begun) == 1


async def test_a_failed_transfer_keeps_the_leader(bench):
    await bench.lead_in(1)

    async def transfer():
        assert bench.phases.phase is NodePhase.ENDING
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await bench.leadership.transfer(transfer)
    assert bench.leadership.serves


async def test_a_node_that_does_not_serve_transfers_without_preparation(bench):
    await bench.says(RaftRole.LEADER, ME, 1)
    handed = []

    async def transfer():
        handed.append(bench.phases.phase)

    await bench.leadership.transfer(transfer)
    assert handed == [NodePhase.STARTUP]
    assert bench.lead.parted == 0


async def fail_to_hand_over(bench, *news):
    """Lead, begin a transfer, receive events during the transfer, and let the transfer fail."""
    await bench.lead_in(1)

    async def transfer():
        await bench.says(*news)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await bench.leadership.transfer(transfer)


async def test_a_node_deposed_during_a_failed_transfer_does_not_serve_again(bench):
    await fail_to_hand_over(bench, RaftRole.FOLLOWER, OTHER, 2)
    assert bench.phases.phase is NodePhase.WAITING
    assert bench.lead.parted == 1


async def test_a_failed_transfer_does_not_affect_a_leadership_of_a_later_term(bench):
    await fail_to_hand_over(bench, RaftRole.LEADER, ME, 2)
    assert bench.phases.phase is NodePhase.STARTUP


@pytest.mark.real_time
async def test_after_a_successful_transfer_the_node_does_not_serve(bench):
    await bench.lead_in(1)

    async def transfer():
        loop = asyncio.get_running_loop()
        state = SoftState(OTHER, RaftRole.FOLLOWER)
        # The node reports the change of leader one turn after the transfer is known to be done.
        loop.call_later(0.001, bench.leadership.role_changed, state, Term(2))

    await bench.leadership.transfer(transfer)
    assert bench.entered == [
        NodePhase.STARTUP,
        NodePhase.RUNNING,
        NodePhase.ENDING,
        NodePhase.WAITING,
    ]


async def test_waiting_for_a_leader_ends_when_one_is_found(bench):
    bench.leadership.caught_up()
    loop = asyncio.get_running_loop()
    waiting = asyncio.ensure_future(bench.leadership.wait_until_settled(loop.time() + 10))
    await turn()
    assert not waiting.done()
    await bench.says(RaftRole.FOLLOWER, OTHER, 1)
    assert await waiting


@pytest.mark.real_time
async def test_waiting_for_a_leader_times_out(bench):
    loop = asyncio.get_running_loop()
    assert not await bench.leadership.wait_until_settled(loop.time() + 0.01)
    assert not await bench.leadership.wait_until_settled(loop.time() - 1)


async def test_a_cancelled_wait_does_not_affect_other_waits(bench):
    loop = asyncio.get_running_loop()
    waiting = asyncio.ensure_future(bench.leadership.wait_until_settled(loop.time() + 10))
    await turn()
    waiting.cancel()
    await turn()
    await bench.says(RaftRole.FOLLOWER, OTHER, 1)
    assert bench.leadership.leader.name == "n2"


async def test_silence_is_counted_while_no_leader_is_known(bench):
    await bench.says(RaftRole.FOLLOWER, OTHER, 1)
    assert bench.leadership.silence_ms() == 0
    await bench.says(RaftRole.FOLLOWER, NO_MEMBER, 2)
    assert bench.leadership.silence_ms() >= 0
    assert bench.leadership.leader is None
    assert bench.leadership.changes == 1
