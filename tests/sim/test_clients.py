"""Check that every client call ends: done, not done, or with an unknown outcome."""

from types import NoneType

from taskraft_replication.core.types import (
    LogIndex,
    Message,
    MessageKind,
    RaftRole,
    SnapshotMeta,
    Term,
)
from taskraft_replication.errors import ProposalLost
from tests.sim.test_known_failures import cut, scripted
from tests.sim.world import Read


def test_clients_of_a_deposed_leader_get_an_unknown_outcome():
    world, leader, followers = scripted()
    done = world.propose(leader, 1)
    world.until(done[0].done)
    cut(world, leader, *followers)
    orphans = world.propose(leader, 3)
    world.until(lambda: leader.driver.core.role is not RaftRole.LEADER)
    assert [type(each.error) for each in orphans] == [ProposalLost] * 3


def test_clients_of_a_deposed_leader_learn_the_result_of_committed_entries():
    """The leader commits, loses leadership at the same moment, and applies the entry later."""
    world, leader, (near, far) = scripted()
    world.elapse(1000)
    core = leader.driver.core
    cut(world, leader, far)
    world.network.cut.add((near.id, leader.id))
    proposals = world.propose(leader, 2)
    world.until(lambda: near.view.last_index() == leader.view.last_index() == core.last_index)
    term, last = core.term, core.last_index
    core.step(Message(MessageKind.APPEND_REPLY, leader.id, near.id, term, index=LogIndex(last - 1)))
    core.step(Message(MessageKind.APPEND_REPLY, leader.id, far.id, Term(term + 1)))
    leader.driver.pump()
    assert core.role is not RaftRole.LEADER
    assert [type(each.error) for each in proposals] == [NoneType, ProposalLost]
    world.until(proposals[0].done)
    assert proposals[0].error is None


def test_clients_get_an_unknown_outcome_if_a_snapshot_replaces_their_entries():
    """The entry may be in the snapshot, but this member does not know its result."""
    world, leader, followers = scripted()
    cut(world, leader, *followers)
    (leave_uncommitted,) = world.propose(leader, 1)
    index = leader.machine.applied_index
    leader.driver.installed(SnapshotMeta(index, Term(1), leader.membership_at(index)))
    assert isinstance(leave_uncommitted.error, ProposalLost)


def test_a_read_of_an_idle_group_is_answered_without_a_new_entry():
    world, leader, followers = scripted()
    world.elapse(1000)
    for member in (leader, *followers):
        before = world.counts["client: reads"]
        read = Read(world, member)
        member.driver.read_index(read)
        world.until(read.done)
        assert world.counts["client: reads"] == before + 1


def test_clients_of_a_stopped_process_get_an_unknown_outcome():
    world, leader, followers = scripted()
    cut(world, leader, *followers)
    (leave_uncommitted,) = world.propose(leader, 1)
    read = Read(world, leader)
    leader.driver.read_index(read)
    leader.stop(power=False)
    assert leave_uncommitted.done()
    assert read.done()
