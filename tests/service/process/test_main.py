"""A node process: its error line when it cannot run, and its shutdown."""

import os
import signal
import subprocess
import sys

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time


def run(environment):
    """Run a node that is expected to exit by itself."""
    return subprocess.run(
        [sys.executable, "-m", "taskraft_service.process"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def cluster(tmp_path):
    one = LocalCluster(1, tmp_path / "c1")
    yield one
    one.close()


def refused(node, **environment):
    """Return the line with which a node refuses to start."""
    done = run({**node.environment, **environment})
    lines = [line for line in done.stderr.splitlines() if line.startswith("taskraft: ")]
    assert done.returncode in (1, 2), done.stderr
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


def test_a_stopped_node_exits_with_0_and_keeps_its_data(cluster):
    (node,) = cluster.nodes
    with cluster:
        assert node.stop() == 0
        node.start()
        cluster.wait_ready()
        assert node.state().state.applied_index > 1
        assert node.stop() == 0


@pytest.mark.shows_fault(
    "process",
    "`PYTHONOPTIMIZE` or `-O` disables assertions",
    "refuses to start, status 2: assertions stop a node before replicas diverge",
)
def test_a_node_does_not_run_without_assertions(cluster):
    line = refused(cluster.nodes[0], PYTHONOPTIMIZE="1")
    assert "assertions disabled" in line
    assert "unset PYTHONOPTIMIZE" in line


def test_ctrl_c_stops_a_node_as_well(cluster):
    (node,) = cluster.nodes
    with cluster:
        os.kill(node.pid, signal.SIGINT)
        assert node._process.wait(15) == 0


def test_a_joining_node_without_an_answer_can_be_stopped(cluster):
    """No member answers, so the node would retry for a minute."""
    (node,) = cluster.nodes
    with subprocess.Popen(
        [sys.executable, "-m", "taskraft_service.process"],
        env={**os.environ, **node.environment, "TASKRAFT_PEERS": "", "TASKRAFT_JOIN": node.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout:
            if "join not answered" in line:
                break
        process.terminate()
        assert "serves" not in process.stdout.read()
        assert process.wait(15) == 0


def test_data_of_another_cluster_is_refused(cluster):
    (node,) = cluster.nodes
    with cluster:
        node.stop()
    line = refused(node, TASKRAFT_CLUSTER_ID="another")
    assert "another" in line


def test_data_of_another_member_is_refused(cluster):
    (node,) = cluster.nodes
    with cluster:
        node.stop()
    peers = node.environment["TASKRAFT_PEERS"].replace("1@", "9@")
    assert refused(node, TASKRAFT_PEERS=peers)


@pytest.mark.shows_fault(
    "directory",
    "the directory cannot be written, is locked, or belongs to another member",
    "refuses to start, status 1, and changes nothing",
)
def test_a_directory_in_use_is_refused(cluster):
    (node,) = cluster.nodes
    with cluster:
        assert "cannot lock data directory" in refused(node)
        assert node.is_running


def test_an_unwritable_directory_is_refused(cluster, tmp_path):
    (node,) = cluster.nodes
    (tmp_path / "file").write_text("not a directory")
    assert "cannot be" in refused(node, TASKRAFT_DATA_DIR=str(tmp_path / "file" / "data"))


def test_a_damaged_log_is_refused(cluster):
    (node,) = cluster.nodes
    with cluster:
        node.stop()
    segments = sorted(
        path
        for path in (node.folder / "data").rglob("*")
        if path.is_file() and path.stat().st_size >= 1 << 20 and "state" not in path.parts
    )
    content = bytearray(segments[0].read_bytes())
    for at in range(4096):
        content[at] ^= 0x55
    segments[0].write_bytes(content)
    assert refused(node)


def test_a_port_in_use_is_refused(cluster):
    (node,) = cluster.nodes
    with cluster:
        other = {
            "TASKRAFT_DATA_DIR": str(node.folder / "other"),
            "TASKRAFT_PEER_LISTEN": "127.0.0.1:0",
            "TASKRAFT_HTTP_LISTEN": "127.0.0.1:0",
        }
        assert node.address in refused(node, **other)


def test_invalid_settings_are_named(cluster):
    (node,) = cluster.nodes
    line = refused(node, TASKRAFT_TICK_MS="soon")
    assert "tick_ms" in line


def test_standard_health_checks_work_on_a_process(cluster):
    (node,) = cluster.nodes
    with cluster, grpc.insecure_channel(node.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "taskraft.v1.TaskService", "taskraft.ready", "taskraft.leader"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING, name
