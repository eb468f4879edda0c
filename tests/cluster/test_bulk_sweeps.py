"""Bulk sweeps on real nodes: they survive a killed leader, and change each task once."""

import pytest

from taskraft import Client
from taskraft.v1.bulk_sweep_pb2 import BulkSweep
from tests.turns import blocked_until
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

TASKS = 3_000
SETTINGS = {"TASKRAFT_AUTO_CREATE_TUBES": "true"}


def test_a_bulk_sweep_continues_after_its_leader_is_killed(tmp_path):
    with LocalCluster(3, tmp_path / "bulk", SETTINGS) as cluster:
        cluster.wait_ready()
        with Client(cluster.target, timeout=30) as client:
            tube = client.tube("many")
            ids = tube.put_many(["x"] * TASKS, type="old")
            other = tube.put("y", type="other")
            sweep = client.start_bulk_sweep(
                "many", "bury", "type = old", reason="by sweep", rate=1_000
            )
            later = tube.put("z", type="old")
            blocked_until(lambda: client.bulk_sweep(sweep.number).changed > 0)
            assert client.bulk_sweep(sweep.number).state == BulkSweep.RUNNING
            cluster.leader().kill()

            def ended():
                return client.bulk_sweep(sweep.number).ended_ms > 0

            blocked_until(ended)
            done = client.bulk_sweep(sweep.number)
            assert (done.state, done.changed, done.refused) == (BulkSweep.DONE, TASKS, 0)
            assert tube.stats().tasks.buried == TASKS
            assert tube.peek(ids[0]).failure == "by sweep"
            assert tube.peek(other).state == tube.peek(later).state == "READY"
            kicks = client.start_bulk_sweep("many", "kick", ids=ids[:5], rate=1)
            stopped = client.stop_bulk_sweep(kicks.number)
            assert stopped.state == BulkSweep.STOPPED
            assert [each.number for each in client.bulk_sweeps()] == [kicks.number, sweep.number]
            calls = [each.call for each in client.audit(name="many")]
            assert calls == ["StopBulkSweep", "StartBulkSweep", "StartBulkSweep"]
