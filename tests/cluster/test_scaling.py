"""Scale a cluster with one configuration for all nodes, as a StatefulSet does.

Three founders are named in the settings of every node. Further nodes join by themselves and become
voters, a node whose volume is lost comes back, and nodes that have all lost their volumes do not
found an empty cluster.
"""

import os
import shutil
import signal
from pathlib import Path

import pytest

from taskraft import Client
from taskraft.v1.cluster_service_pb2 import Member
from tests.cluster.test_member_replacement import members_of, ready_page
from tests.cluster.test_membership import last_words
from tests.turns import blocked_until
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

SETTINGS = {
    "TASKRAFT_AUTO_CREATE_TUBES": "true",
    "TASKRAFT_JOIN_AS": "voter",
    "TASKRAFT_REPLACE_MEMBER": "always",
}
SCALED_MS_MAX = 60_000


@pytest.fixture
def cluster(tmp_path):
    with LocalCluster(3, tmp_path / "scaled", SETTINGS) as one:
        yield one


def further_node(cluster, name):
    """Return a node with the peers of the founders and its own addresses."""
    node = cluster.joiner(name)
    node.environment = {**node.environment, "TASKRAFT_PEERS": founders_of(cluster)}
    del node.environment["TASKRAFT_JOIN"]
    return node


def founders_of(cluster):
    return cluster.nodes[0].environment["TASKRAFT_PEERS"]


def voters(cluster):
    return sorted(member.name for member in members_of(cluster) if member.suffrage == Member.VOTER)


def await_voters(cluster, *names):
    cluster.wait_until(lambda: voters(cluster) == list(names), f"voters {names}", SCALED_MS_MAX)


def lose_volume(node):
    node.kill()
    shutil.rmtree(Path(node.environment["TASKRAFT_DATA_DIR"]))


def test_a_cluster_grows_to_five_and_shrinks_to_three_without_losing_a_task(cluster):
    with Client(cluster.target) as client:
        for number in range(20):
            client.tube("work").put(b"%d" % number)
    for name in ("n4", "n5"):
        further_node(cluster, name).start()
    await_voters(cluster, "n1", "n2", "n3", "n4", "n5")
    fifth = cluster.nodes[4]
    # A restart removes nobody, and the node does not join again.
    before = {member.name: member.id for member in members_of(cluster)}
    fifth.stop()
    fifth.start()
    cluster.wait_ready()
    assert {member.name: member.id for member in members_of(cluster)} == before
    # A lost volume of a node that has joined.
    lose_volume(fifth)
    fifth.start()
    cluster.wait_until(
        lambda: "the member is replaced" in fifth.log.read_text(), "a new n5", SCALED_MS_MAX
    )
    await_voters(cluster, "n1", "n2", "n3", "n4", "n5")
    # The member is removed before its process ends, from the highest number down.
    with Client(",".join(node.address for node in cluster.nodes[:3])) as client:
        for node in (fifth, cluster.nodes[3]):
            client.remove_member(node.name)
            assert node.wait(SCALED_MS_MAX) != 0
        await_voters(cluster, "n1", "n2", "n3")
        tasks = client.take_many("work", 100, wait="5s")
        assert sorted(int(task.payload) for task in tasks) == list(range(20))


def test_nodes_above_the_wanted_number_leave_one_by_one_and_others_stay_members(cluster, tmp_path):
    wanted = tmp_path / "replicas"
    further = [further_node(cluster, name) for name in ("n-3", "n-4")]
    for node in further:
        node.environment = {**node.environment, "TASKRAFT_REPLICAS_FILE": str(wanted)}
        node.start()
    await_voters(cluster, "n-3", "n-4", "n1", "n2", "n3")
    with Client(cluster.target) as client:
        client.tube("work").put(b"kept")
    # Without the file, and with a number that is not above the ordinal, nobody leaves.
    for text in (None, "5"):
        if text is not None:
            wanted.write_text(text)
        further[1].stop()
        further[1].start()
        cluster.wait_ready()
        await_voters(cluster, "n-3", "n-4", "n1", "n2", "n3")
    wanted.write_text("3")
    # The leader stops too, and its usual successor is the other node that stops.
    with Client(cluster.target) as client:
        assert client.transfer_leadership("n-4") == "n-4"
    for node in further:
        os.kill(node.pid, signal.SIGTERM)
    assert [node.wait(SCALED_MS_MAX) for node in further] == [0, 0]
    await_voters(cluster, "n1", "n2", "n3")
    with Client(cluster.target) as client:
        assert [task.payload for task in client.take_many("work", 2, wait="5s")] == [b"kept"]
    # The volume of a member that has left is refused, and an empty one too: one line each.
    for reason in ("it must join again, with an empty data directory", "n-4 does not join"):
        further[1].start()
        assert further[1].wait(SCALED_MS_MAX) == 1
        assert reason in last_words(further[1])
        lose_volume(further[1])
    await_voters(cluster, "n1", "n2", "n3")


def test_a_stopping_node_never_leaves_less_than_a_majority(cluster, tmp_path):
    """One of four voters is down, so without n-3 two of three remain; then n-3 may leave."""
    wanted = tmp_path / "replicas"
    wanted.write_text("4")
    node = further_node(cluster, "n-3")
    node.environment = {**node.environment, "TASKRAFT_REPLICAS_FILE": str(wanted)}
    node.start()
    await_voters(cluster, "n-3", "n1", "n2", "n3")
    wanted.write_text("3")
    followers = [each for each in cluster.nodes[:3] if each is not cluster.leader()][:2]
    for each in followers:
        each.kill()
    os.kill(node.pid, signal.SIGTERM)
    blocked_until(lambda: "not removed yet" in node.log.read_text())
    assert node.is_running
    followers[0].start()
    assert node.wait(SCALED_MS_MAX) == 0
    assert "the node has left its cluster" in node.log.read_text()
    followers[1].start()
    await_voters(cluster, "n1", "n2", "n3")


def test_founders_that_have_all_lost_their_volumes_do_not_found_an_empty_cluster(cluster):
    with Client(cluster.target) as client:
        client.tube("work").put(b"kept")
    for node in cluster.nodes:
        node.environment = {**node.environment, "TASKRAFT_BOOTSTRAP": "false"}
        lose_volume(node)
    for node in cluster.nodes:
        node.log.write_text("")
        node.start()

    def all_wait():
        return all("bootstrap is false" in ready_page(node)[1] for node in cluster.nodes)

    cluster.wait_until(all_wait, "nodes that wait for their cluster", SCALED_MS_MAX)
    assert cluster.leader() is None
    assert {ready_page(node)[0] for node in cluster.nodes} == {503}


def test_a_founder_that_has_lost_its_volume_comes_back_as_a_new_member(cluster):
    node = next(each for each in cluster.nodes if each is not cluster.leader())
    node.environment = {**node.environment, "TASKRAFT_BOOTSTRAP": "false"}
    lose_volume(node)
    node.log.write_text("")
    node.start()
    cluster.wait_until(
        lambda: "the member is replaced" in node.log.read_text(), "a new member", SCALED_MS_MAX
    )
    await_voters(cluster, "n1", "n2", "n3")
    assert all(each.is_running for each in cluster.nodes)
