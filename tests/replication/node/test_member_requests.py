"""Every request to a member ends, also if the member does not run or stops."""

import asyncio
from types import SimpleNamespace

import pytest

from taskraft_replication.core.confchange import ConfChange
from taskraft_replication.core.types import ConfState, LogIndex, MemberId, RaftRole
from taskraft_replication.errors import NotRaftLeader, Stopped, TransferFailed
from taskraft_replication.node.change_notifier import ChangeNotifier
from taskraft_replication.node.member_requests import MemberRequests
from tests.replication.core.cluster import Cluster

ALONE = ConfState((MemberId(1),))
JOINT = ConfState((MemberId(1),), voters_outgoing=(MemberId(1), MemberId(2)), auto_leave=True)


class Member:
    """Replaces a driver; ``core`` leads a group of three, in which member 2 answers."""

    def __init__(self) -> None:
        cluster = Cluster(3)
        cluster.elect(1)
        cluster[1].propose(b"x")
        cluster.settle(among=[1, 2])
        self.core = SimpleNamespace(role=RaftRole.LEADER, status=cluster[1].status)
        self.membership = ALONE
        self.offered: list[MemberId] = []
        self.wanted: list[tuple[object, asyncio.Future]] = []

    def propose_change(self, change, outcome) -> None:
        self.wanted.append((change, outcome))

    def read_index(self, outcome) -> None:
        self.wanted.append(("read", outcome))

    def transfer_leader(self, to) -> None:
        self.offered.append(to)

    def step_down(self) -> None:
        self.core.role = RaftRole.FOLLOWER


class Running:
    """Requests to a running member."""

    def __init__(self, transfer_ms_max: int = 60_000) -> None:
        self.member = Member()
        self.changes = ChangeNotifier()
        self.requests = MemberRequests(
            self.member, self.changes, transfer_ms_max, lambda: self.is_running
        )
        self.is_running = True

    def stop(self) -> None:
        self.is_running = False
        self.changes.notify_all()

    async def begin(self, wanted) -> asyncio.Task:
        task = asyncio.create_task(wanted)
        await asyncio.sleep(0)
        return task


async def test_a_member_that_does_not_run_refuses_all_requests():
    running = Running()
    running.is_running = False
    for wanted in (
        running.requests.change_membership(ConfChange()),
        running.requests.read_index(),
        running.requests.transfer_leadership(None),
    ):
        with pytest.raises(Stopped):
            await wanted
    assert not running.member.wanted
    assert not running.member.offered


async def test_a_read_returns_the_index_that_the_member_confirms():
    running = Running()
    reading = await running.begin(running.requests.read_index())
    ((what, outcome),) = running.member.wanted
    assert what == "read"
    outcome.set_result(LogIndex(8))
    assert await reading == 8


async def test_a_change_ends_when_the_joint_configuration_is_left():
    running = Running()
    change = ConfChange()
    changing = await running.begin(running.requests.change_membership(change))
    ((wanted, outcome),) = running.member.wanted
    assert wanted is change
    running.member.membership = JOINT
    outcome.set_result(None)
    for _ in range(3):
        running.changes.notify_all()
        await asyncio.sleep(0)
    assert not changing.done()
    running.member.membership = ALONE
    running.changes.notify_all()
    assert await changing == ALONE


async def test_a_change_fails_if_the_member_stops_in_a_joint_configuration():
    running = Running()
    changing = await running.begin(running.requests.change_membership(ConfChange()))
    running.member.membership = JOINT
    running.member.wanted[0][1].set_result(None)
    await asyncio.sleep(0)
    running.stop()
    with pytest.raises(Stopped, match="joint"):
        await changing


@pytest.mark.parametrize(("to", "offered"), [(None, 2), (MemberId(3), 3)])
async def test_a_transfer_ends_when_the_leadership_is_lost(to, offered):
    running = Running()
    handing = await running.begin(running.requests.transfer_leadership(to))
    assert running.member.offered == [offered]
    running.changes.notify_all()
    await asyncio.sleep(0)
    assert not handing.done(), "another change has no effect"
    running.member.core.role = RaftRole.FOLLOWER
    running.changes.notify_all()
    await handing
    assert running.member.offered == [offered]


@pytest.mark.real_time
async def test_a_transfer_without_effect_is_repeated_once_and_fails():
    running = Running(transfer_ms_max=1)
    with pytest.raises(TransferFailed, match="member 2 did not take over in 2 ms"):
        await running.requests.transfer_leadership(None)
    assert running.member.offered == [2, 2]


async def test_a_follower_refuses_a_transfer_and_names_the_leader():
    running = Running()
    cluster = Cluster(3)
    cluster.elect(2)
    running.member.core = cluster[1]
    with pytest.raises(NotRaftLeader) as refusal:
        await running.requests.transfer_leadership(None)
    assert refusal.value.leader == 2
    assert not running.member.offered


async def test_a_transfer_without_another_voter_fails():
    running = Running()
    cluster = Cluster(1)
    cluster.elect(1)
    running.member.core = cluster[1]
    with pytest.raises(TransferFailed, match="no other voter"):
        await running.requests.transfer_leadership(None)


@pytest.mark.real_time
async def test_a_leadership_that_nobody_takes_over_ends_too():
    running = Running(transfer_ms_max=1)
    await running.requests.end_leadership()
    assert running.member.offered == [2, 2], "a transfer is tried first"
    assert running.member.core.role is RaftRole.FOLLOWER


async def test_a_transfer_fails_if_the_member_stops():
    running = Running()
    handing = await running.begin(running.requests.transfer_leadership(None))
    running.stop()
    with pytest.raises(Stopped):
        await handing
