"""A group with real files and real gRPC: elect, propose, kill, restart, catch up."""

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from taskraft_replication.core.raft import RaftCore
from taskraft_replication.core.types import LogIndex, MemberId, MemberInfo, RaftRole
from taskraft_replication.errors import (
    DirectoryForeign,
    DirectoryLocked,
    NotRaftLeader,
    ReadUnconfirmed,
    Stopped,
    TransferFailed,
)
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.node.leader_loss import LeaderLossCampaign
from taskraft_replication.node.node import Node
from taskraft_replication.storage.filesystem import DiskFile
from taskraft_replication.storage.metadata import Identity
from taskraft_replication.storage.stored_member import stored_member
from tests.replication.counting_machine import CountingMachine
from tests.replication.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time


async def propose_all(node: Node, count: int, prefix: str = "line") -> list[object]:
    proposals = [node.propose(f"{prefix} {number}".encode()) for number in range(count)]
    return await asyncio.gather(*proposals)


async def test_a_single_member_elects_itself_and_applies_in_order(tmp_path):
    async with LocalCluster(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        results = await propose_all(leader, 100)
        assert results == list(range(1, 101))
        assert cluster.machines[1].lines == [f"line {number}".encode() for number in range(100)]


async def test_proposals_of_one_turn_cost_one_sync(tmp_path):
    async with LocalCluster(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        before = leader.counters.batches
        await propose_all(leader, 100)
        assert leader.counters.batches == before + 1
        assert leader.append_idle


async def test_a_flushed_proposal_is_written_in_the_same_turn(tmp_path):
    async with LocalCluster(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        await leader.propose(b"before")
        wanted: list[str] = []
        submit = leader._worker.submit
        leader._worker.submit = lambda *work: (wanted.append("write"), submit(*work))
        proposed = leader.propose(b"line 0")
        assert not leader.append_idle
        assert not wanted
        leader.pump()
        assert wanted == ["write"]
        await proposed


async def test_three_members_apply_the_same_entries(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        await propose_all(leader, 200)
        await cluster.converged()
        assert leader.status().peers[leader.config.member_id].lag_entries == 0


async def test_a_follower_refuses_proposals_and_names_the_leader(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        await cluster.until(lambda: follower.status().leader == leader.config.member_id)
        with pytest.raises(NotRaftLeader) as refusal:
            await follower.propose(b"x")
        assert refusal.value.leader == leader.config.member_id


async def test_a_read_on_a_follower_sees_all_entries_acknowledged_before(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        for member, node in cluster.nodes.items():
            await propose_all(leader, 3)
            seen = len(cluster.machines[leader.config.member_id].lines)
            assert await node.read_index() >= seen
            assert len(cluster.machines[member].lines) == seen


class AskedCore:
    """Passes reads on to the core, and records the rounds of these reads."""

    def __init__(self, core) -> None:
        self._core = core
        self.rounds: set[bytes] = set()

    def read_index(self, context: bytes) -> None:
        self.rounds.add(context)
        self._core.read_index(context)


async def test_many_reads_share_a_round(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        for node in cluster.nodes.values():
            asked = AskedCore(node._driver.core)
            node._driver._reads._core = asked
            first = asyncio.ensure_future(node.read_index())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            # These reads arrive during the round of the first read: they share the next round.
            others = [asyncio.ensure_future(node.read_index()) for _ in range(1000)]
            index = leader.status().commit
            assert min(await asyncio.gather(first, *others)) >= index
            assert len(asked.rounds) == 2


async def test_a_leader_that_is_cut_off_confirms_no_read(tmp_path, monkeypatch):
    async with LocalCluster(tmp_path, 3) as cluster:
        old = await cluster.leader()
        await propose_all(old, 5, "before")
        await cluster.converged()
        with monkeypatch.context() as cut:
            cut.setattr(old._effects, "send", lambda _: None)
            cut.setattr(old._driver, "receive", lambda _: None)
            reading = asyncio.ensure_future(old.read_index())
            assert old.status().role is RaftRole.LEADER, (
                "the cut-off leader does not know of the new leader"
            )
            others = [node for node in cluster.nodes.values() if node is not old]
            await cluster.until(
                lambda: any(node.status().role is RaftRole.LEADER for node in others)
            )
            successor = next(node for node in others if node.status().role is RaftRole.LEADER)
            await propose_all(successor, 5, "after")
            with pytest.raises(ReadUnconfirmed):
                await reading
            with pytest.raises(ReadUnconfirmed):
                await old.read_index()
            assert len(cluster.machines[old.config.member_id].lines) == 5
        # After the partition the read sees all missed entries, or fails.
        await cluster.until(lambda: old.status().leader == successor.config.member_id)
        assert await old.read_index() >= successor.status().applied
        assert len(cluster.machines[old.config.member_id].lines) == 10


async def test_a_killed_leader_loses_no_acknowledged_entry(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        await propose_all(leader, 50, "before")
        await cluster.kill(leader.config.member_id)
        successor = await cluster.leader()
        assert successor is not leader
        await propose_all(successor, 50, "after")
        await cluster.start(leader.config.member_id)
        await cluster.converged()
        lines = cluster.machines[leader.config.member_id].lines
        assert lines[:50] == [f"before {number}".encode() for number in range(50)]
        assert len(lines) == 100


async def test_an_entry_costs_one_sync_on_each_member(tmp_path, monkeypatch):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        await cluster.converged()
        synced = []

        def counted(operation):
            def count(file, *arguments):
                opened = Path(f"/proc/self/fd/{file._descriptor}").readlink()
                synced.append(opened.relative_to(tmp_path))
                operation(file, *arguments)

            return count

        for name in ("sync", "write_through"):
            monkeypatch.setattr(DiskFile, name, counted(getattr(DiskFile, name)))
        for number in range(30):
            await leader.propose(b"entry %d" % number)
        await cluster.converged()
        of_logs = Counter(path.parts[0] for path in synced if path.suffix == ".log")
        assert of_logs[str(leader.config.member_id)] == 30
        # A member that lags may store several entries at once.
        assert all(0 < of_logs[str(member)] <= 30 for member in cluster.ids)
        # One sync stores all proposals of one turn of the event loop.
        synced.clear()
        await propose_all(leader, 50)
        await cluster.converged()
        batches = Counter(path.parts[0] for path in synced if path.suffix == ".log")
        assert batches == dict.fromkeys(map(str, cluster.ids), 1)
        # The only other sync is that of the mark, once per second or in a pause.
        assert {path.name for path in synced if path.suffix != ".log"} <= {"mark"}


async def test_a_leader_whose_stream_ends_is_replaced_without_an_election_timeout(tmp_path):
    # No election timeout expires during this test.
    async with LocalCluster(tmp_path, 3, election_ticks=100_000) as cluster:
        await cluster.led_for_good(1)
        rest = [cluster.nodes[2], cluster.nodes[3]]
        seekers = []
        for node in rest:
            # Let only one member campaign at a time, because two candidates at once could split the
            # vote.
            node._leader_loss._campaign_without_leader = partial(seekers.append, node)
        await cluster.kill(1)
        await cluster.until_seen(lambda: len(seekers) == 2)
        assert [node.status().leader for node in rest] == [0, 0]
        LeaderLossCampaign._campaign_without_leader(rest[0]._leader_loss)
        assert await cluster.leader() is rest[0]


async def test_acknowledged_entries_survive_the_kill_of_all_members(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        await propose_all(leader, 50)
        for member in cluster.ids:
            await cluster.kill(member)
        for member in cluster.ids:
            await cluster.start(member)
        await cluster.leader()
        await cluster.converged()
        assert len(cluster.machines[1].lines) == 50


async def test_a_follower_that_needs_trimmed_entries_gets_a_snapshot_while_the_leader_works(
    tmp_path,
):
    settings = {
        "flush_bytes": 1 << 15,
        "kept_entries": 10,
        "segment_bytes": 1 << 14,
        "election_ticks": 100_000,
    }
    async with LocalCluster(tmp_path, 3, **settings) as cluster:
        leader = await cluster.led_for_good(1)
        await cluster.kill(3)
        await cluster.trimmed(leader, 100)
        node = await cluster.start(3)
        await propose_all(leader, 20)
        await cluster.converged()
        assert node.status().first > 100
        # The installed state survives a kill.
        await cluster.kill(3)
        await cluster.start(3)
        await cluster.converged()


async def test_the_log_is_trimmed_to_its_limit_of_bytes_with_few_large_entries(tmp_path):
    settings = {"flush_bytes": 1 << 15, "kept_bytes": 1 << 15, "segment_bytes": 1 << 14}
    async with LocalCluster(tmp_path, 1, **settings) as cluster:
        leader = await cluster.leader()
        await cluster.trimmed(leader, 200)
        status = leader.status()
        assert status.first < status.last - (1 << 14) // 600, "entries within the limit stay"


async def test_leadership_is_transferred_on_request(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        await propose_all(leader, 10)
        target = next(member for member in cluster.ids if member != leader.config.member_id)
        await leader.transfer_leadership(target)
        successor = await cluster.leader()
        assert successor.config.member_id == target
        assert leader.status().role is RaftRole.FOLLOWER


async def test_a_lost_transfer_message_is_repeated(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        await cluster.converged()
        offered = []
        transfer = leader._driver.transfer_leader

        def lose_the_first(to) -> None:
            offered.append(to)
            if len(offered) > 1:
                transfer(to)

        leader._driver.transfer_leader = lose_the_first
        await leader.transfer_leadership()
        assert offered[1:] == offered[:1]
        assert leader.status().role is RaftRole.FOLLOWER


async def test_a_transfer_to_a_member_that_does_not_take_over_fails(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        leader._driver.transfer_leader = lambda _: None
        with pytest.raises(TransferFailed, match="did not take over"):
            await leader.transfer_leadership()
        assert leader.status().role is RaftRole.LEADER


async def test_a_stopped_node_fails_its_proposals(tmp_path):
    async with LocalCluster(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        await leader.stop()
        del cluster.nodes[1]
        with pytest.raises(Stopped):
            await leader.propose(b"x")


async def test_an_exception_during_apply_stops_the_node(tmp_path):
    async with LocalCluster(tmp_path, 1) as cluster:
        leader = await cluster.leader()

        def fail(entries):
            raise ZeroDivisionError("a bug")

        cluster.machines[1].apply = fail
        with pytest.raises(Exception, match="outcome of the proposal"):
            await leader.propose(b"x")
        assert "a bug" in str(await leader.failed)


async def test_a_data_directory_is_used_by_one_process_at_a_time(tmp_path):
    async with LocalCluster(tmp_path, 1) as cluster:
        with pytest.raises(DirectoryLocked, match="holds the lock"):
            await Node.open(cluster.config(1), CountingMachine(), cluster.transports[1])


@pytest.mark.parametrize(
    ("cluster_id", "member_id", "named"),
    [("other", 1, "cluster_id 'test'"), ("test", 2, "member_id 1")],
)
async def test_data_of_another_member_is_refused(tmp_path, cluster_id, member_id, named):
    async with LocalCluster(tmp_path, 1) as cluster:
        await cluster.leader()
    config = NodeConfig(cluster_id, member_id, tmp_path / "1", {1: MemberInfo(1), 2: MemberInfo(2)})
    with pytest.raises(DirectoryForeign, match=named):
        await Node.open(config, CountingMachine(), cluster.transports[1])


async def test_idle_members_keep_their_leader(tmp_path):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        term = leader.status().term
        ticks = 0
        tick = leader._driver.tick

        def count():
            nonlocal ticks
            ticks += 1
            cluster.changes.happened.set()
            tick()

        leader._driver.tick = count
        await cluster.until(lambda: ticks > 40)
        assert leader.status().term == term
        assert leader.status().role is RaftRole.LEADER


async def test_one_process_runs_members_of_several_groups(tmp_path, caplog):
    """The groups share only the port and the data directory.

    The ticks are long: six members share the processor, and a late leader must keep its role.
    """
    caplog.set_level("INFO")
    async with LocalCluster(tmp_path, 3, tick_ms=100) as cluster:
        first = await cluster.leader()
        await propose_all(first, 3, "of the first")
        machines = {member: CountingMachine() for member in cluster.ids}
        second = []
        for member in cluster.ids:
            config = replace(cluster.config(member), group_id=1)
            transport = cluster.transports[member]
            directory = cluster.nodes[member]._directory
            second.append(await Node.open(config, machines[member], transport, directory))
            second[-1].observe(cluster.changes)
        await asyncio.gather(*(node.start() for node in second))
        leader = await leader_among(cluster, second)
        await propose_all(leader, 20)
        await cluster.until(lambda: len({machine.digest() for machine in machines.values()}) == 1)
        assert all(len(machine.lines) == 3 for machine in cluster.machines.values())
        # The files of the groups are in separate folders, each with its identity.
        for member in cluster.ids:
            for group_id in (0, 1):
                found = stored_member(cluster.path / str(member), group_id)
                assert found.identity == Identity("test", member, group_id, f"m{member}")
        assert {node.status().group_id for node in second} == {1}
        assert f"group 1: member {leader.config.member_id} is leader" in caplog.text
        # An event in one group does not affect the other.
        term = first.status().term
        second.remove(leader)
        await leader.stop()
        successor = await leader_among(cluster, second)
        await propose_all(successor, 20)
        await propose_all(first, 3, "of the first")
        assert first.status().term == term
        assert machines[successor.config.member_id].lines[:3] == [b"line 0", b"line 1", b"line 2"]
        await asyncio.gather(*(node.stop() for node in second))


async def leader_among(cluster, nodes):
    """Wait until one of some nodes leads; return it."""
    await cluster.until(lambda: any(node.status().role is RaftRole.LEADER for node in nodes))
    return next(node for node in nodes if node.status().role is RaftRole.LEADER)


class Eager:
    """A transport that has met the other members before it joins a group."""

    def join(self, membership, roster, receiver):
        for info in roster.members:
            if info.member != membership.member_id:
                receiver.handshake_done(info.member, f"directory{info.member}")
        return self

    def send(self, messages):
        """Lose the messages."""

    def set_roster(self, roster):
        """Connect to no peer."""

    def set_preferred(self, members):
        """Ignore the preferred followers."""

    def set_leading_term(self, term):
        """Tell no peer."""

    async def close(self):
        """Do nothing, because nothing is open."""


async def test_a_founder_that_meets_the_last_founder_while_it_joins_starts_once(tmp_path):
    members = {1: MemberInfo(1, "m1"), 2: MemberInfo(2, "m2")}
    config = NodeConfig("c", 1, tmp_path, members)
    node = await Node.open(config, CountingMachine(), Eager())
    await node.start()
    stored = asyncio.Event()
    node._effects.store(lambda: None, lambda _: stored.set())
    # Storage work runs in order, so the group has started when this item is done.
    await stored.wait()
    assert node.is_running
    assert not node.failed.done()
    await node.stop()


async def test_a_damaged_peer_learns_only_durable_commits_and_a_live_leader(tmp_path, monkeypatch):
    """Behind its last durable entry, the stored log may have uncommitted entries of others."""
    async with LocalCluster(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        await leader.propose(b"line")
        receiver = cluster.transports[MemberId(1)]._groups[0].receiver
        assert receiver.log.knowledge().commit == leader.status().commit
        assert receiver.leader == 1
        monkeypatch.setattr(RaftCore, "stored_commit_index", LogIndex(1))
        monkeypatch.setattr(RaftCore, "live_leader", MemberId(0))
        assert receiver.log.knowledge().commit == 1
        assert receiver.leader == 0
