"""Members are added and removed with real files and real gRPC, while entries are proposed."""

from __future__ import annotations

import asyncio

import pytest

from taskraft_replication.core.confchange import (
    ConfChangeTransition,
    MemberChange,
    MemberChangeKind,
)
from taskraft_replication.core.errors import ConfChangeFault
from taskraft_replication.core.types import (
    MemberId,
    MemberInfo,
    RaftRole,
)
from taskraft_replication.errors import (
    ChangeRefused,
    DirectoryUnknown,
    MemberRemoved,
    NotRaftLeader,
)
from taskraft_replication.membership.roster import (
    change_of,
    change_of_several,
    find,
)
from taskraft_replication.node.node import Node
from tests.replication.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

ADD_LEARNER = MemberChangeKind.ADD_LEARNER
ADD_VOTER = MemberChangeKind.ADD_VOTER
REMOVE = MemberChangeKind.REMOVE


def info(cluster: LocalCluster, member: int) -> MemberInfo:
    number = MemberId(member)
    return MemberInfo(number, f"m{member}", peer_address=cluster.addresses[number])


def removal(member: int):
    return change_of_several((MemberChange(REMOVE, MemberId(member)),), ())


async def caught_up(cluster: LocalCluster, leader: Node, member: int) -> None:
    await cluster.until_seen(
        lambda: leader.status().peers[MemberId(member)].match >= leader.status().commit
    )


class Load:
    """Proposes one entry after the other on the leader, and remembers the acknowledged ones."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.acknowledged: list[bytes] = []
        self._is_over = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        number = 0
        while not self._is_over:
            number += 1
            data = b"load %d" % number
            for node in [*self.cluster.nodes.values()]:
                try:
                    async with asyncio.timeout(5):
                        await node.propose(data)
                except Exception:  # noqa: BLE001 - this node does not lead or the outcome is unknown: try the next node
                    continue
                self.acknowledged.append(data)
                break
            else:
                await asyncio.sleep(0)

    async def end(self) -> None:
        self._is_over = True
        await self._task
        await self.cluster.converged()
        for member in self.cluster.nodes:
            assert set(self.acknowledged) <= set(self.cluster.machines[member].lines)


async def test_three_members_grow_to_five_and_shrink_to_three_under_load(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        load = Load(cluster)
        for member in (4, 5):
            await cluster.add(member)
            after = await leader.change_membership(change_of(ADD_LEARNER, info(cluster, member)))
            assert after.learners == (member,)
            await caught_up(cluster, leader, member)
            after = await leader.change_membership(change_of(ADD_VOTER, info(cluster, member)))
            assert member in after.voters
        assert [each.name for each in after.roster.members] == ["m1", "m2", "m3", "m4", "m5"]
        gone = [each for each in (1, 2, 3) if each != leader.config.member_id]
        for member in gone:
            node = cluster.nodes[member]
            after = await leader.change_membership(removal(member))
            assert member not in after.voters
            assert isinstance(await node.failed, MemberRemoved)
            await cluster.stop(member)
        assert after.roster.last_member == 5
        assert len(after.voters) == 3
        await load.end()
        assert len(load.acknowledged) > 10


async def test_a_joint_change_replaces_two_members_and_is_left_automatically(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        own = leader.config.member_id
        load = Load(cluster)
        await cluster.add(4)
        await cluster.add(5)
        leaving = [each for each in (1, 2, 3) if each != own]
        change = change_of_several(
            [
                MemberChange(ADD_VOTER, MemberId(4)),
                MemberChange(ADD_VOTER, MemberId(5)),
                *(MemberChange(REMOVE, MemberId(each)) for each in leaving),
            ],
            [info(cluster, 4), info(cluster, 5)],
        )
        assert change.transition is ConfChangeTransition.AUTO
        after = await leader.change_membership(change)
        assert after.voters == tuple(sorted((own, 4, 5)))
        assert after.voters_outgoing == ()
        for member in leaving:
            assert isinstance(await cluster.nodes[member].failed, MemberRemoved)
            await cluster.stop(member)
        await load.end()


async def test_a_leader_killed_in_a_joint_configuration_loses_nothing(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        own = leader.config.member_id
        load = Load(cluster)
        await cluster.add(4)
        change = change_of_several(
            [MemberChange(ADD_VOTER, MemberId(4)), MemberChange(REMOVE, own)], [info(cluster, 4)]
        )
        changing = asyncio.ensure_future(leader.change_membership(change))
        await cluster.until(lambda: bool(leader.status().conf_state.voters_outgoing))
        await cluster.kill(own)
        with pytest.raises(Exception, match=r"unknown|stop"):
            await changing
        rest = tuple(sorted({1, 2, 3, 4} - {own}))
        # Both majorities exist without the killed member: the next leader completes the change.
        await cluster.until(
            lambda: all(
                node.status().conf_state.voters == rest
                and not node.status().conf_state.voters_outgoing
                for node in cluster.nodes.values()
            )
        )
        await load.end()
        with pytest.raises(MemberRemoved, match="removed"):
            raise await (await cluster.start(own)).failed


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_leader_that_alone_knows_of_its_removal_helps_the_last_voter(tmp_path, is_killed):
    """The other of two voters needs a vote of the removed leader, because it has no majority."""
    async with LocalCluster(tmp_path, 2) as cluster:
        leader = await cluster.leader()
        own = leader.config.member_id
        other = next(each for each in cluster.ids if each != own)
        peers = leader._effects.peers
        send = peers.send
        peers.send = lambda messages: send([each for each in messages if each.entries])
        after = await leader.change_membership(removal(own))
        assert after.voters == (other,)
        assert cluster.nodes[other].status().conf_state.voters == (1, 2)
        peers.send = send
        if is_killed:
            await cluster.kill(own)
            leader = await cluster.start(own)
        await cluster.until(lambda: cluster.nodes[other].status().conf_state.voters == (other,))
        assert isinstance(await leader.failed, MemberRemoved)
        await cluster.stop(own)
        assert await (await cluster.leader()).propose(b"x")


async def test_a_removed_member_refuses_to_start(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        member = next(each for each in cluster.ids if each != leader.config.member_id)
        away = cluster.nodes[member]
        await cluster.stop(member)
        assert not away.failed.done()
        await leader.change_membership(removal(member))
        # The member was stopped during its removal, so it learns of the removal from the other
        # members.
        again = await cluster.start(member)
        assert isinstance(await again.failed, MemberRemoved)
        await cluster.stop(member)
        # From now on the member itself has stored its removal.
        with pytest.raises(MemberRemoved, match=f"member {member} was removed"):
            await cluster.start(member)


async def test_a_wiped_member_is_refused_under_its_old_id(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        await leader.propose(b"promised")
        member = next(each for each in cluster.ids if each != leader.config.member_id)
        await cluster.kill(member)
        cluster.wipe(member)
        wiped = await cluster.start(member)
        refusal = await wiped.failed
        assert isinstance(refusal, DirectoryUnknown)
        assert "remove the member" in str(refusal)
        assert wiped.status().term == 1, "the founder did not vote"
        await cluster.stop(member)
        # The wiped member returns as a new member.
        await leader.change_membership(removal(member))
        await cluster.add(4)
        await leader.change_membership(change_of(ADD_LEARNER, info(cluster, 4)))
        await caught_up(cluster, leader, 4)
        await leader.change_membership(change_of(ADD_VOTER, info(cluster, 4)))
        await cluster.converged()


async def test_wiped_members_cannot_found_the_group_again_without_the_other_founders(tmp_path):
    """Two of three members were wiped.

    Together they could elect a leader and lose acknowledged entries.
    """
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        await leader.propose(b"promised")
        for member in cluster.ids:
            await cluster.kill(member)
        for member in cluster.ids[:2]:
            cluster.wipe(member)
        wiped = [await cluster.start(member) for member in cluster.ids[:2]]
        await cluster.until_seen(
            lambda: all(node._bootstrap.missing == (cluster.ids[2],) for node in wiped)
        )
        assert not any(node.is_running for node in wiped)
        await cluster.start(cluster.ids[2])
        for node in wiped:
            assert isinstance(await node.failed, DirectoryUnknown)
        for member in cluster.ids[:2]:
            await cluster.stop(member)


async def test_a_new_leader_is_answered_by_a_member_that_does_not_know_it(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        own = leader.config.member_id
        away = next(each for each in cluster.ids if each != own)
        await cluster.stop(away)
        await cluster.add(4)
        await leader.change_membership(change_of(ADD_LEARNER, info(cluster, 4)))
        await caught_up(cluster, leader, 4)
        await leader.change_membership(change_of(ADD_VOTER, info(cluster, 4)))
        newcomer = cluster.nodes[MemberId(4)]
        # A member with a committed but unapplied change does not campaign.
        await cluster.until_seen(lambda: newcomer.status().applied == leader.status().commit)
        assert 4 in newcomer.status().conf_state.voters
        await leader.transfer_leadership(MemberId(4))
        await cluster.stop(own)
        # The returning member knows neither id nor address of the only possible leader.
        back = await cluster.start(away)
        await cluster.until(lambda: back.status().leader not in (0, own))
        await cluster.until(lambda: back.status().applied == back.status().commit > 4)
        assert find(back.status().conf_state.roster, MemberId(4)) is not None


async def test_an_invalid_change_is_refused_and_changes_nothing(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        with pytest.raises(NotRaftLeader):
            await follower.change_membership(removal(1))
        outcomes = await asyncio.gather(
            leader.change_membership(change_of(ADD_LEARNER, MemberInfo(MemberId(4), "m4"))),
            leader.change_membership(change_of(ADD_LEARNER, MemberInfo(MemberId(5), "m5"))),
            return_exceptions=True,
        )
        assert outcomes[0].learners == (4,)
        assert isinstance(outcomes[1], ChangeRefused)
        assert outcomes[1].fault is ConfChangeFault.UNAPPLIED_CHANGE
        assert leader.status().conf_state.learners == (4,)
        assert leader.status().role is RaftRole.LEADER


async def test_the_roster_survives_restarts_and_is_part_of_snapshots(tmp_path):
    settings = {"flush_bytes": 4096, "kept_entries": 2, "election_ticks": 100_000}
    async with LocalCluster(tmp_path, 3, **settings) as cluster:
        leader = await cluster.led_for_good(1)
        await cluster.trimmed(leader, 2)
        await cluster.add(4)
        await leader.change_membership(change_of(ADD_LEARNER, info(cluster, 4)))
        await caught_up(cluster, leader, 4)
        await cluster.converged()
        rosters = [node.status().conf_state.roster for node in cluster.nodes.values()]
        assert len({*rosters}) == 1
        assert all(each.directory_id for each in rosters[0].members if each.member != 4)
        for member in [*cluster.nodes]:
            await cluster.kill(member)
        del cluster.settings["election_ticks"]
        for member in cluster.machines:
            await cluster.start(member)
        await cluster.leader()
        await cluster.converged()
        assert {node.status().conf_state.roster for node in cluster.nodes.values()} == {*rosters}


async def test_a_founder_wiped_before_the_group_exists_still_founds_it(tmp_path):
    """The new directory counts its starts from 1 again, and no acknowledged data is lost."""
    async with LocalCluster(tmp_path, 3) as cluster:
        one, two, three = cluster.ids
        for member in cluster.ids:
            await cluster.kill(member)
            cluster.wipe(member)
        await cluster.start(two)
        waiting = await cluster.start(one)
        await cluster.until_seen(lambda: waiting._bootstrap.missing == (three,))
        await cluster.kill(two)
        cluster.wipe(two)
        again = await cluster.start(two)
        await cluster.start(three)
        await cluster.until_seen(lambda: again.failed.done() or again.is_running)
        assert again.is_running
        await (await cluster.leader()).propose(b"x")
