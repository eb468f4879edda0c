"""A node with a hung disk transfers leadership, and later stops."""

import pytest

from taskraft_replication.errors import ProposalLost, StorageFailed
from tests.hung_disk import hung_disk
from tests.replication.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time


async def test_a_leader_whose_disk_hangs_is_replaced_and_follows_later(tmp_path, monkeypatch):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        with hung_disk(monkeypatch, leader.config.data_directory):
            lost = leader.propose(b"unknown outcome")
            others = [node for node in cluster.nodes.values() if node is not leader]
            await cluster.until(
                lambda: any(node.status().leader == node.config.member_id for node in others)
            )
            with pytest.raises(ProposalLost):
                await lost
            assert leader.is_disk_stalled
            assert leader.counters.disk_stalls == leader.counters.disk_handovers == 1
            successor = await cluster.leader()
            assert successor is not leader
            await successor.propose(b"without the hung disk")
        await cluster.converged()
        assert not leader.is_disk_stalled


async def test_a_node_whose_disk_hangs_for_good_stops_with_the_reason(tmp_path, monkeypatch):
    async with LocalCluster(tmp_path, 1, disk_stall_ticks=2, disk_hang_ticks=100) as cluster:
        node = await cluster.leader()
        with hung_disk(monkeypatch, tmp_path):
            waiting = node.propose(b"x")
            await cluster.until(lambda: node.is_disk_stalled)
            for _ in range(99):
                node._tick()
            reason = node.failed.result()
            assert isinstance(reason, StorageFailed)
            assert str(node.config.data_directory) in str(reason)
            with pytest.raises(ProposalLost, match="has not answered"):
                await waiting
