"""A node whose log or vote is lost becomes a new member without an operator."""

import os
import shutil
import urllib.request
from urllib.error import HTTPError

import grpc
import pytest

from taskraft.v1 import task_pb2, task_service_pb2_grpc, tube_service_pb2, tube_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from taskraft.v1.cluster_service_pb2 import Member
from tests.cluster.test_state_repair import SMALL, data_of, follower_of, tasks_of
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

REPLACED_MS_MAX = 60_000


def put(leader, first, count):
    with grpc.insecure_channel(leader.address) as channel:
        tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        for number in range(first, first + count):
            specs = [task_pb2.TaskSpec(payload=os.urandom(2000))] * 5
            tasks.PutTasks(pb.PutTasksRequest(tube="t", tasks=specs, request_id=f"r{number}"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three nodes with tasks; each test continues with the nodes that the test before has left."""
    with LocalCluster(3, tmp_path_factory.mktemp("replacement") / "c", SMALL) as one:
        leader = one.leader()
        with grpc.insecure_channel(leader.address) as channel:
            tube = tube_service_pb2.Tube(name="t", kind=tube_service_pb2.Tube.FIFO)
            create = tube_service_pb2.CreateTubeRequest(tube=tube)
            tube_service_pb2_grpc.TubeServiceStub(channel).CreateTube(create)
        put(leader, 0, 40)
        yield one


def members_of(cluster):
    leader = cluster.leader()
    state = leader.state() if leader else None
    return list(state.members) if state else []


def await_replacement(cluster, node, old):
    """Wait until a new member of the node's name votes and has the log, and ``old`` is gone."""

    def is_replaced():
        assert node.is_running, node.tail()
        members = members_of(cluster)
        mine = [member for member in members if member.name == node.name]
        state = node.state()
        return (
            len(mine) == 1
            and mine[0].id > old
            and mine[0].suffrage == Member.VOTER
            and len(members) == 3
            and state is not None
            and state.state.phase == state.state.WAITING
            and state.state.applied_index >= cluster.leader().state().state.applied_index
            and "the member is replaced" in node.log.read_text()
        )

    cluster.wait_until(is_replaced, "the node is replaced", REPLACED_MS_MAX)


def id_of(cluster, node):
    cluster.wait_until(lambda: members_of(cluster), "a leader", REPLACED_MS_MAX)
    return max(member.id for member in members_of(cluster) if member.name == node.name)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content.rstrip(b"\0")) // 3] ^= 0x10
    path.write_bytes(content)


def oldest_segment(raft):
    return min((raft / "log").glob("*"))


HARMS = {
    "flipped log": lambda raft: flip(oldest_segment(raft)),
    "cut hard state": lambda raft: cut(raft / "hard_state"),
    "no hard state": lambda raft: (raft / "hard_state").unlink(),
    "no log": lambda raft: shutil.rmtree(raft / "log"),
    "no identity": lambda raft: (raft / "identity").unlink(),
    "flipped identity": lambda raft: flip(raft / "identity"),
    "no mark": lambda raft: (raft / "mark").unlink(),
    "no log start": lambda raft: (raft / "log_start").unlink(),
    "no membership": lambda raft: (raft / "membership").unlink(),
    "no directory id": lambda raft: (raft / "directory").unlink(),
}

LIVE_HARMS = {
    "flipped log": lambda raft: flip(oldest_segment(raft)),
    "no segment": lambda raft: oldest_segment(raft).unlink(),
    "flipped hard state": lambda raft: flip(raft / "hard_state"),
}


@pytest.mark.shows_fault(
    "log and vote",
    "flipped bit in a durable part of the log or in a small file, or a file of "
    "`raft-0` is missing, found at a start",
    "[becomes a new member](#damage-to-the-log-or-the-vote)",
)
@pytest.mark.parametrize("harm", HARMS)
def test_a_node_that_lost_its_log_or_vote_is_replaced_without_hands(cluster, harm):
    node = follower_of(cluster)
    old, before = id_of(cluster, node), tasks_of(node)
    node.kill()
    HARMS[harm](data_of(node) / "raft-0")
    node.log.write_text("")
    node.start()
    await_replacement(cluster, node, old)
    assert tasks_of(node) == before
    assert (data_of(node) / "raft-0.damaged").is_dir()
    assert not (data_of(node) / "replacement").exists()
    cluster.wait_until(lambda: "WAITING" in ready_page(node)[1], "readiness", 10_000)


@pytest.mark.shows_fault(
    "log and vote",
    "flipped bit in the log or in a small file, or a missing segment, while the node runs,"
    " found by the [scrubber](#scrubber)",
    "becomes a new member, and does not vote meanwhile",
)
@pytest.mark.parametrize("harm", ["flipped log", "no segment", "flipped hard state"])
def test_a_running_node_that_loses_its_log_or_vote_is_replaced_without_hands(cluster, harm):
    node = follower_of(cluster)
    old, before = id_of(cluster, node), tasks_of(node)
    assert node.stop() == 0
    node.environment["TASKRAFT_SCRUB_PERIOD_MS"] = "1000"
    node.log.write_text("")
    node.start()
    cluster.wait_until(lambda: "WAITING" in ready_page(node)[1], "readiness", REPLACED_MS_MAX)
    LIVE_HARMS[harm](data_of(node) / "raft-0")
    await_replacement(cluster, node, old)
    assert tasks_of(node) == before
    said = node.log.read_text()
    # A peer may connect while the node stops, when its port has no gRPC server behind it any more.
    own = [
        line for line in said.splitlines() if "cannot connect to the local gRPC server" not in line
    ]
    assert not any("[Errno" in line for line in own)
    assert "becomes a new member" in said


def ready_page(node):
    try:
        with urllib.request.urlopen(f"http://{node.http_address}/readyz", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""  # the port is not open yet, or does not answer yet


def test_a_node_waits_for_a_majority_and_continues_after_a_kill(cluster):
    leader, node = cluster.leader(), follower_of(cluster)
    other = next(each for each in cluster.nodes if each not in (leader, node))
    old = id_of(cluster, node)
    node.kill()
    other.kill()
    (data_of(node) / "raft-0" / "hard_state").unlink()
    node.log.write_text("")
    node.start()
    cluster.wait_until(lambda: "recover --force-new" in ready_page(node)[1], "reason", 60_000)
    status, text = ready_page(node)
    assert status == 503
    assert "replacing member" in text
    assert "hard_state" in text
    node.kill()
    node.start()
    other.start()
    await_replacement(cluster, node, old)


def test_an_empty_volume_is_replaced_only_if_the_settings_say_so(cluster):
    node = follower_of(cluster)
    old, before = id_of(cluster, node), tasks_of(node)
    node.kill()
    shutil.rmtree(data_of(node))
    node.log.write_text("")
    node.start()
    assert node.wait(60_000) == 1
    node.environment["TASKRAFT_REPLACE_MEMBER"] = "always"
    node.start()
    await_replacement(cluster, node, old)
    assert tasks_of(node) == before


def test_a_node_does_not_replace_itself_if_the_setting_is_off(cluster):
    node = follower_of(cluster)
    node.environment["TASKRAFT_REPLACE_MEMBER"] = "off"
    node.kill()
    (data_of(node) / "raft-0" / "hard_state").unlink()
    node.start()
    assert node.wait(60_000) == 1
    assert not (data_of(node) / "replacement").exists()
