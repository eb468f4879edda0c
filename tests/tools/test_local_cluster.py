"""Run nodes as real processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import local_cluster
from tools.local_cluster import LocalCluster, NodeFailed, free_addresses


def test_addresses_are_different_and_on_loopback():
    addresses = free_addresses(20)
    assert len(set(addresses)) == 20
    assert {address.partition(":")[0] for address in addresses} == {"127.0.0.1"}


DRAW = """
import sys
from tools import local_cluster
local_cluster.PORTS = range(*map(int, sys.argv[1:]))
print(*local_cluster.free_addresses(20), flush=True)
sys.stdin.read()
"""


def test_two_processes_never_draw_the_same_address(monkeypatch):
    begin = int(free_addresses(1)[0].partition(":")[2]) % 20_000 + 10_000
    ports = range(begin, begin + 60)
    monkeypatch.setattr(local_cluster, "PORTS", ports)
    with subprocess.Popen(
        [sys.executable, "-c", DRAW, str(ports.start), str(ports.stop)],
        cwd=Path(local_cluster.__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        of_other = other.stdout.readline().split()
        ours = [*free_addresses(10), *free_addresses(10)]
        other.stdin.close()
    assert len({*of_other, *ours}) == 40


@pytest.mark.cluster
def test_a_node_that_cannot_start_is_reported_with_its_output(tmp_path):
    cluster = LocalCluster(1, tmp_path, {"TASKRAFT_TICK_MS": "seldom"})
    with pytest.raises(NodeFailed, match=r"n1 exited during the start:\n.*tick_ms"), cluster:
        pass
    assert not any(cluster.running())


@pytest.mark.cluster
def test_a_killed_node_starts_again_with_its_data(tmp_path):
    with LocalCluster(1, tmp_path) as cluster:
        (node,) = cluster.nodes
        first = node.state()
        node.kill()
        assert (node.is_running, node.state(), cluster.leader()) == (False, None, None)
        node.start()
        cluster.wait_ready()
        again = node.state()
        assert again.cluster_id == first.cluster_id
        assert again.state.term > first.state.term
        assert node.stop() == 0
