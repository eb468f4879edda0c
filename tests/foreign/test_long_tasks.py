"""Work on one task for long, from Go and from Node.js, while the stream is silent.

The consumers use the generated stubs alone. Half of them keep all options of their channels at the
defaults. The others send keepalive pings at the shortest interval that their library permits. Half
of them call a follower, which relays the stream.

The work takes a few seconds. `make long-tasks` sets TASKRAFT_TEST_WORK_MS to two minutes.
"""

import json
import os
import subprocess

import grpc
import pytest

from taskraft.v1 import tube_service_pb2 as pb
from taskraft.v1 import tube_service_pb2_grpc
from tests.foreign.conftest import ROOT, build_go
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.foreign

WORK_MS = int(os.environ.get("TASKRAFT_TEST_WORK_MS", "6000"))
"""More than one interval of heartbeats."""
GRACE_S = 60
"""For the rest of a run, on a busy machine."""
KEEPALIVE_MS = {"go": 10_000, "node": 500}
"""grpc-go raises shorter intervals to 10 s. grpc-js has no minimum; 500 ms is the interval of the
Python client, and twice the minimum that a node permits."""
VARIANTS = [
    (language, keepalive, role)
    for language in KEEPALIVE_MS
    for keepalive in ("default", "shortest")
    for role in ("leader", "follower")
]


@pytest.fixture(scope="module")
def go_command(go_stubs, tmp_path_factory):
    return build_go(go_stubs, "./longtask", tmp_path_factory.mktemp("go") / "longtask")


@pytest.fixture(scope="module")
def node_command(node_folder):
    return ["node", str(node_folder / "longtask.js")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LocalCluster(3, tmp_path_factory.mktemp("foreign") / "long") as one:
        yield one


@pytest.fixture(scope="module")
def consumers(cluster, go_command, node_command):
    """Start all variants at the same time, so that their work overlaps."""
    commands = {"go": go_command, "node": node_command}
    leader = cluster.wait_ready()
    nodes = {
        "leader": leader,
        "follower": next(node for node in cluster.nodes if node is not leader),
    }
    running = {}
    for language, keepalive, role in VARIANTS:
        interval = KEEPALIVE_MS[language] if keepalive == "shortest" else 0
        tube = f"{language}-{keepalive}-{role}"
        arguments = [nodes[role].address, tube, str(WORK_MS), str(interval)]
        running[language, keepalive, role] = subprocess.Popen(
            [*commands[language], *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    yield running
    for process in running.values():
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("language", "keepalive", "role"), VARIANTS)
def test_a_silent_stream_lasts_until_the_task_is_acknowledged(
    consumers, cluster, language, keepalive, role
):
    process = consumers[language, keepalive, role]
    output, errors = process.communicate(timeout=WORK_MS / 1000 + GRACE_S)
    assert process.returncode == 0, errors
    tube = f"{language}-{keepalive}-{role}"
    assert json.loads(output) == {"payload": "long", "settled": f"{tube}-ack", "errors": 0}
    assert "too_many_pings" not in errors
    with grpc.insecure_channel(cluster.wait_ready().address) as channel:
        stub = tube_service_pb2_grpc.TubeServiceStub(channel)
        counts = stub.GetStatistics(pb.GetStatisticsRequest(tubes=[tube]), timeout=20).total
    assert (counts.tasks.total, counts.calls.ack, counts.calls.take) == (0, 1, 1)
