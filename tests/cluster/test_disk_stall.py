"""Hang the fsyncs of a real node: the cluster continues, and the node can be stopped."""

import shutil
import urllib.error
import urllib.request

import pytest

from taskraft import Client
from taskraft_service.process.main import EXIT_BROKEN
from tools.local_cluster import LocalCluster
from tools.sync_fault import SyncFaults

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to delay fsyncs with"),
]

AUTO = {"TASKRAFT_AUTO_CREATE_TUBES": "true"}
PUT_SECONDS = 20


class Hanging:
    """A cluster of three nodes whose disks can hang, and a client."""

    def __init__(self, tmp_path, **settings):
        self.cluster = LocalCluster(3, tmp_path / "c", {**AUTO, **settings})
        self.faults = SyncFaults(self.cluster, tmp_path / "faults")
        self.client = Client(self.cluster.target)
        self.acknowledged = []

    def __enter__(self):
        self.cluster.__enter__()
        self.client.__enter__()
        return self

    def __exit__(self, *error):
        self.client.__exit__(*error)
        for node in self.cluster.nodes:
            self.faults.heal(node)
        self.cluster.__exit__(*error)

    def put(self, count=1):
        for _ in range(count):
            payload = b"%d" % len(self.acknowledged)
            self.client.tube("work").put(payload, timeout=PUT_SECONDS)
            self.acknowledged.append(payload)

    def await_ready(self, node):
        self.cluster.wait_until(lambda: page(node, "/readyz")[0] == 200, "the disk answers again")

    def take_all(self):
        found = []
        while tasks := self.client.tube("work").take_many(100, wait=0):
            found += [task.payload for task in tasks]
        return found


def page(node, path):
    try:
        with urllib.request.urlopen(f"http://{node.http_address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def complaint(node):
    """Return the line in which a node reports why it stopped."""
    lines = node.log.read_text().splitlines()
    (line,) = [each for each in lines if each.startswith("taskraft: ")]
    return line


@pytest.mark.shows_fault(
    "disk",
    "a write or an fsync does not return for `TASKRAFT_DISK_STALL_MS` (500 ms)",
    "a leader transfers its leadership if the other members have synced the same "
    "entries; the node is not ready and does not campaign "
    "([raft.md](raft.md#slow-and-hung-disks))",
)
def test_puts_continue_and_no_task_is_lost_while_the_leaders_disk_hangs(tmp_path):
    with Hanging(tmp_path) as hanging:
        hanging.put(10)
        for _ in range(2):
            leader = hanging.cluster.wait_ready()
            hanging.faults.hang(leader)
            hanging.put(50)
            assert page(leader, "/livez")[0] == 200
            status, text = page(leader, "/readyz")
            assert status == 503
            assert "the disk has not answered for" in text
            assert "taskraft_disk_handovers_total" in page(leader, "/metrics")[1]
            assert hanging.cluster.leader() is not leader
            hanging.faults.heal(leader)
            hanging.await_ready(leader)
        assert hanging.take_all() == hanging.acknowledged


def test_a_node_with_a_hung_disk_stops_at_sigterm_and_keeps_all_acknowledged_tasks(tmp_path):
    with Hanging(tmp_path, TASKRAFT_STOP_GRACE_MS="2000") as hanging:
        hanging.put(10)
        node = hanging.cluster.wait_ready()
        hanging.faults.hang(node)
        hanging.put(10)
        assert node.stop() == EXIT_BROKEN
        assert "did not answer within" in complaint(node)
        hanging.faults.heal(node)
        node.start()
        hanging.cluster.wait_ready()
        assert hanging.take_all() == hanging.acknowledged


@pytest.mark.shows_fault(
    "disk",
    "a write or an fsync does not return for `TASKRAFT_DISK_HANG_MS` (30 s)",
    "exits with status 70",
)
def test_a_node_whose_disk_hangs_too_long_stops(tmp_path):
    with Hanging(tmp_path, TASKRAFT_DISK_HANG_MS="2000") as hanging:
        hanging.put(10)
        node = hanging.cluster.wait_ready()
        hanging.faults.hang(node)
        hanging.put(10)
        assert node.wait() == EXIT_BROKEN
        assert str(node.folder / "data") in complaint(node)
        assert "has not answered for 2000 ms" in complaint(node)
        hanging.put(10)


def test_a_node_whose_read_of_the_state_hangs_exits_and_another_node_serves(tmp_path):
    """Such a read may hold the interpreter lock, so that no Python code of the node runs."""
    with Hanging(tmp_path, TASKRAFT_DISK_HANG_MS="2000") as hanging:
        payloads = [b"%d" % number * 10_000 for number in range(100)]
        hanging.client.tube("work").put_many(payloads)
        for node in hanging.cluster.nodes:
            node.stop()  # the state is on the disk now, and the next process has not read it
            node.close()
        hanging.cluster.start()
        node = hanging.cluster.wait_ready()
        hanging.faults.hang_reads(node)
        assert hanging.take_all() == payloads
        assert node.wait() in (1, EXIT_BROKEN)
        assert "most recent call first" in node.log.read_text()
        hanging.faults.heal(node)


@pytest.mark.parametrize("rules", ["append.before_sync=eio@60"])
def test_a_failed_node_stops_without_waiting_for_relayed_streams(tmp_path, rules):
    """The grace period is one minute, so a node that waited would exceed the test's time."""
    cluster = LocalCluster(3, tmp_path / "c", {**AUTO, "TASKRAFT_STOP_GRACE_MS": "60000"})
    with cluster:
        leader = cluster.wait_ready()
        node = next(each for each in cluster.nodes if each is not leader)
        node.stop()
        node.module = "tests.failpoints"
        node.environment = {**node.environment, "TASKRAFT_FAILPOINTS": rules}
        node.start()
        cluster.wait_ready()
        with (
            Client(node.address) as near,
            Client(leader.address) as client,
            near.subscribe("other"),
        ):
            while "node is broken" not in node.log.read_text():
                client.tube("work").put(b"x", timeout=PUT_SECONDS)
            assert node.wait() == EXIT_BROKEN
        assert "Input/output error" in complaint(node)
