"""An entry wakes the event loop of a member at most once for its log and once for each peer."""

from collections import Counter

import pytest

from taskraft_replication.node.storage_worker import StorageWorker
from taskraft_replication.peers.frame_connection import FrameReceiver
from tests.replication.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

ENTRIES = 100


async def test_an_entry_wakes_a_member_once_for_its_log_and_once_for_each_peer(
    tmp_path, monkeypatch
):
    async with LocalCluster(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        await cluster.converged()
        for node in cluster.nodes.values():
            node._ticker.stop()  # no heartbeats
        wake_ups: Counter[tuple[str, object]] = Counter()
        members = {id(node._worker): member for member, node in cluster.nodes.items()}
        report, receive = StorageWorker._report, FrameReceiver.data_received

        def counted_report(worker, callback, argument):
            wake_ups["log", members[id(worker)]] += 1
            report(worker, callback, argument)

        def counted_receive(receiver, data):
            wake_ups["peer", receiver] += 1
            receive(receiver, data)

        monkeypatch.setattr(StorageWorker, "_report", counted_report)
        monkeypatch.setattr(FrameReceiver, "data_received", counted_receive)
        for number in range(ENTRIES):
            await leader.propose(b"entry %d" % number)
        monkeypatch.undo()
    leads = leader.config.member_id
    assert wake_ups["log", leads] == ENTRIES
    assert max(wake_ups.values()) <= ENTRIES
    # Each member has a log. Two connections end at the leader, and one at each follower.
    assert len(wake_ups) == 7
