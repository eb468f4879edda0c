"""A node with another node's directory, or with a copy of its own, does not stop the cluster."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace

import grpc
import pytest

from taskraft.v1 import cluster_service_pb2 as cluster_pb
from taskraft.v1 import (
    cluster_service_pb2_grpc,
    task_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
)
from tests.authority import Authority
from tests.cluster.test_state_repair import data_of, follower_of
from tools.free_addresses import free_addresses
from tools.local_cluster import LocalCluster
from tools.local_node import Node

pytestmark = pytest.mark.cluster

RETURN_MS_MAX = 60_000
REFUSED_MS_MAX = 60_000
FOLLOWS = cluster_pb.NodeState.WAITING


EACH_SECURITY = pytest.mark.parametrize("cluster", ["plain", "tls"], indirect=True)
PLAIN = pytest.mark.parametrize(
    "cluster", ["plain", pytest.param("tls", marks=pytest.mark.nightly)], indirect=True
)
"""Leaves TLS to the nightly run: a copy has the same certificate, so certificates decide nothing
between a node and its copy."""


@pytest.fixture(scope="module")
def cluster(request, tmp_path_factory):
    """Three nodes; ``tls``: with certificates that prove the names of the nodes."""
    folder = tmp_path_factory.mktemp("volumes")
    one = LocalCluster(3, folder / "c", {"TASKRAFT_AUTO_CREATE_TUBES": "true"})
    if request.param == "tls":
        authority = Authority(folder, "nodes")
        for node in one.nodes:
            own = authority.node(node.name, "c")
            node.environment = {
                **node.environment,
                "TASKRAFT_PEER_TLS_CERT": str(own.certificate),
                "TASKRAFT_PEER_TLS_KEY": str(own.key),
                "TASKRAFT_PEER_TLS_CA": str(own.authority),
            }
    with one:
        yield one


@pytest.fixture
def whole(cluster):
    """The cluster with all nodes running; a test leaves no other process."""
    for node in cluster.nodes:
        if not node.is_running:
            node.start()
    cluster.wait_until(cluster.is_ready, "all nodes follow", RETURN_MS_MAX)
    return cluster


@pytest.fixture(
    params=["founder", pytest.param("joined", marks=pytest.mark.nightly)],
)
def follower(request, whole):
    """A founder, or a member that has joined, which does not lead."""
    has_joined = request.param == "joined"

    def found():
        nodes = [node for node in whole.nodes if is_joiner(node) == has_joined]
        return next((node for node in nodes if node is not whole.leader()), None)

    if has_joined and not any(is_joiner(node) for node in whole.nodes):
        replaced(whole, follower_of(whole))
    if found() is None:
        with grpc.insecure_channel(whole.leader().address) as channel:
            stub = cluster_service_pb2_grpc.ClusterServiceStub(channel)
            stub.TransferLeadership(cluster_pb.TransferLeadershipRequest(), timeout=10)
        whole.wait_until(whole.is_ready, "another node leads", RETURN_MS_MAX)
    return found()


def is_joiner(node):
    return "TASKRAFT_JOIN" in node.environment


def put(cluster, request_id):
    with grpc.insecure_channel(cluster.leader().address) as channel:
        tasks = [task_pb2.TaskSpec(payload=b"x")]
        request = task_service_pb2.PutTasksRequest(tube="t", tasks=tasks, request_id=request_id)
        task_service_pb2_grpc.TaskServiceStub(channel).PutTasks(request, timeout=5)


def hashes(directory):
    """Return the hash of each file; ``lock`` has the id of the process that last tried to start."""
    return {
        path.relative_to(directory): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def lines_of(node):
    text = node.log.read_text(errors="replace")
    return [line for line in text.splitlines() if line.startswith("taskraft: ")]


def refusal_of(node):
    """Start a node that must refuse; return its line."""
    node.log.parent.mkdir(parents=True, exist_ok=True)
    node.log.write_text("")
    node.start()
    assert node.wait(REFUSED_MS_MAX) == 1
    (line,) = lines_of(node)
    return line


def copy_of(node, tmp_path) -> Node:
    """Return a node with a copy of another one's directory, its name, and other addresses."""
    shutil.copytree(data_of(node), tmp_path / "copy" / "data")
    client, peer, http = free_addresses(3)
    peers = node.environment["TASKRAFT_PEERS"]
    for old, new in ((node.address, client), (node.peer_address, peer)):
        peers = peers.replace(old, new)
    return replace(
        node,
        folder=tmp_path / "copy",
        address=client,
        peer_address=peer,
        http_address=http,
        environment={
            **node.environment,
            "TASKRAFT_DATA_DIR": str(tmp_path / "copy" / "data"),
            "TASKRAFT_PEERS": peers,
            "TASKRAFT_LISTEN": client,
            "TASKRAFT_PEER_LISTEN": peer,
            "TASKRAFT_HTTP_LISTEN": http,
        },
    )


def paused_copy_of(node, tmp_path) -> Node:
    """Return a copy of a running node, which is paused meanwhile, as by a snapshot of its disk."""
    node.pause()
    try:
        return copy_of(node, tmp_path)
    finally:
        node.resume()


def give_back(copy, node):
    """Start a node with the directory of a copy that has ended."""
    shutil.rmtree(data_of(node))
    shutil.copytree(data_of(copy), data_of(node))
    node.start()


def follows(node):
    state = node.state()
    return state is not None and state.state.phase == FOLLOWS and bool(state.leader)


def incarnation_of(node):
    return (data_of(node) / "raft-0" / "incarnation").read_bytes()


def replaced(cluster, node):
    """Replace a founder by a member that joins, as docs/disaster.md describes."""
    assert node.stop() == 0
    shutil.rmtree(data_of(node))
    with grpc.insecure_channel(cluster.leader().address) as channel:
        stub = cluster_service_pb2_grpc.ClusterServiceStub(channel)
        stub.RemoveMember(cluster_pb.RemoveMemberRequest(name=node.name), timeout=10)
    others = [each for each in cluster.nodes if each is not node]
    is_tls = "TASKRAFT_PEER_TLS_CERT" in node.environment
    targets = [each.peer_address if is_tls else each.address for each in others]
    node.environment = {
        **node.environment,
        "TASKRAFT_JOIN": ",".join(targets),
        "TASKRAFT_JOIN_AS": "voter",
    }
    node.start()

    def votes():
        state = cluster.leader().state() if cluster.leader() else None
        members = state.members if state else ()
        suffrages = [each.suffrage for each in members if each.name == node.name]
        return follows(node) and suffrages == [cluster_pb.Member.VOTER]

    cluster.wait_until(votes, "the new member votes", RETURN_MS_MAX)


@pytest.mark.shows_fault(
    "directory",
    "the directory belongs to another node: a swapped or cloned volume, of a founder or of a "
    "member that joined",
    "refuses to start, status 1, and changes nothing",
)
@EACH_SECURITY
def test_swapped_and_cloned_volumes_are_refused_and_stay_as_they_are(whole, tmp_path):
    cluster = whole
    one = follower_of(cluster)
    replaced(cluster, one)
    two = next(each for each in cluster.nodes if each not in (one, cluster.leader()))
    for own, foreign in ((two, one), (one, two)):
        wrong = paused_copy_of(foreign, tmp_path / own.name)
        assert own.stop() == 0
        right = own.environment
        own.environment = {**right, "TASKRAFT_DATA_DIR": wrong.environment["TASKRAFT_DATA_DIR"]}
        before = hashes(tmp_path / own.name / "copy" / "data")
        line = refusal_of(own)
        assert f"belongs to node '{foreign.name}', not to '{own.name}'" in line
        assert hashes(tmp_path / own.name / "copy" / "data") == before
        put(cluster, f"beside {own.name}")
        own.environment = right
        own.start()
        cluster.wait_until(cluster.is_ready, "the node follows with its own", RETURN_MS_MAX)


@pytest.mark.shows_fault(
    "directory",
    "a second process runs with a copy of a running node's directory, and with its name",
    "the second process exits with status 1 after 10 s; the first one serves on",
)
@PLAIN
def test_a_second_process_does_not_win_against_the_first(whole, follower, tmp_path):
    cluster, first = whole, follower
    second = paused_copy_of(first, tmp_path)
    before = incarnation_of(second)
    second.start()
    put(cluster, "beside the second")
    assert second.wait(REFUSED_MS_MAX) == 1
    (line,) = lines_of(second)
    assert "another process of member" in line
    assert incarnation_of(second) == before, "the second start of the copy has no advantage"
    assert "outdated" not in first.log.read_text()
    assert follows(first)
    put(cluster, "after the second")


@pytest.mark.shows_fault(
    "directory",
    "a second process has run with a copy of the directory while the node was paused or cut off",
    "the first process exits with status 1, at each start too, because its directory lacks what "
    "the second one has acknowledged; the other members serve",
)
@PLAIN
def test_a_node_that_a_second_process_has_replaced_ends(whole, follower, tmp_path):
    cluster, first = whole, follower
    first.pause()
    second = copy_of(first, tmp_path)
    second.start()
    try:
        cluster.wait_until(lambda: follows(second), "the second process follows", RETURN_MS_MAX)
        put(cluster, "acknowledged by the second process")
        first.log.write_text("")
        first.resume()
        assert first.wait(REFUSED_MS_MAX) == 1
        (line,) = lines_of(first)
        assert "is outdated" in line
        assert follows(second)
    finally:
        second.close()
    assert "is outdated" in refusal_of(first)
    put(cluster, "beside the node")
    give_back(second, first)
    cluster.wait_until(cluster.is_ready, "the node follows with the newest copy", RETURN_MS_MAX)


@pytest.mark.shows_fault(
    "directory",
    "an older copy of the node's own directory, and the other members have met the newer one",
    "refuses, status 1, at each start; the number of starts stays as it was",
)
@PLAIN
def test_an_older_directory_of_the_same_node_is_refused_at_each_start(whole, follower, tmp_path):
    cluster, node = whole, follower
    assert node.stop() == 0
    older = copy_of(node, tmp_path)
    older.environment = {
        **node.environment,
        "TASKRAFT_DATA_DIR": older.environment["TASKRAFT_DATA_DIR"],
    }
    for _ in range(2):
        node.start()
        cluster.wait_until(cluster.is_ready, "the node follows", RETURN_MS_MAX)
        assert node.stop() == 0
    before = incarnation_of(older)
    for _ in range(4):
        line = refusal_of(older)
        assert "is outdated" in line
        assert "older copy" in line
        assert incarnation_of(older) == before
    node.start()
    cluster.wait_until(cluster.is_ready, "the node follows", RETURN_MS_MAX)


@PLAIN
def test_of_two_copies_of_a_stopped_node_the_first_to_start_runs(whole, follower, tmp_path):
    cluster, node = whole, follower
    assert node.stop() == 0
    copy = copy_of(node, tmp_path)
    copy.start()
    try:
        cluster.wait_until(lambda: follows(copy), "the copy follows", RETURN_MS_MAX)
        line = refusal_of(node)
        assert "is outdated" in line
        assert follows(copy)
        assert copy.stop() == 0
    finally:
        copy.close()
    give_back(copy, node)
    cluster.wait_until(cluster.is_ready, "the node follows with the newest copy", RETURN_MS_MAX)
