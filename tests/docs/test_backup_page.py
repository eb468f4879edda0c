"""The procedure of docs/backup.md works with every member, which leads or follows.

The page itself, which tests/docs/test_documents.py runs, is the case of a founder that is alone.
The nodes of these runs have other addresses and folders than those of the page, and the restored
node has the name of the member that has sent the backup.
"""

import re
from dataclasses import replace

import pytest

from taskraft import Client
from tests.docs.documents import ROOT, Session, blocks
from tests.docs.member_commands import add, lead, leave_alone, node_of, taskraft
from tools.free_addresses import free_addresses
from tools.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.docs,
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
]

PAGE = "docs/backup.md"
SAVE = "## Save"
SETTINGS = {"TASKRAFT_AUTO_CREATE_TUBES": "true"}
ADDRESS = re.compile(r"127\.0\.0\.1:74[567][123]")
FOUNDERS, JOINED = ("n1", "n2", "n3"), "n4"


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three founders and a member that has joined."""
    with LocalCluster(3, tmp_path_factory.mktemp("three") / "c", SETTINGS) as cluster:
        add(cluster, JOINED)
        yield cluster


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A member that has joined, and is alone since the founder was removed."""
    with LocalCluster(1, tmp_path_factory.mktemp("one") / "c", SETTINGS) as cluster:
        (founder,) = cluster.nodes
        add(cluster, JOINED)
        leave_alone(cluster, founder)
        yield cluster


def procedure(sender, folder):
    """Return the blocks from the first backup on, with another sender, addresses and folder.

    A third node joins by the commands of the second one.
    """
    free = iter(free_addresses(9))
    addresses = {f"127.0.0.1:74{node}{port}": next(free) for node in "567" for port in "123"}
    page = (ROOT / PAGE).read_text()
    found = blocks(PAGE, page[page.index(SAVE) :])
    second = [block for block in found if "second" in block.text]
    assert len(second) == 2
    third = [
        replace(block, text=block.text.replace("second", "third").replace(":746", ":747"))
        for block in second
    ]

    def adapted(text):
        text = text.replace("var/backup", str(folder)).replace("NAME=first", f"NAME={sender}")
        return ADDRESS.sub(lambda old: addresses[old[0]], text)

    moved = [replace(block, text=adapted(block.text)) for block in (*found, *third)]
    return moved, [addresses[f"127.0.0.1:74{node}1"] for node in "567"]


def tasks_at(target):
    with Client(target) as client:
        return client.tube("emails").count()


def restored_by_page(sender, folder):
    """Run the page with a member that sends the backup, and a node of its name that gets it.

    Returns:
        the names of the voters of the restored cluster, and the number of tasks at each node.
    """
    commands, targets = procedure(sender.name, folder)
    with Session(beside=Session()) as session:
        session.environment["TASKRAFT_TARGET"] = sender.address
        for block in commands:
            session.run(block)
        with Client(targets[0]) as client:
            members = client.cluster_state().members
        voters = [each.name for each in members if each.suffrage == each.VOTER]
        return voters, [tasks_at(target) for target in targets]


@pytest.mark.parametrize("leads", [True, False], ids=["leads", "follows"])
@pytest.mark.parametrize("name", [*FOUNDERS, JOINED])
def test_each_of_several_members_sends_the_backup(three, tmp_path, name, leads):
    other = next(node.name for node in three.nodes if node.name != name)
    lead(three, name if leads else other)
    voters, tasks = restored_by_page(node_of(three, name), tmp_path)
    assert voters == [name, "second", "third"]
    assert tasks == [tasks_at(three.target)] * 3


def test_a_member_that_joined_and_is_alone_sends_the_backup(one, tmp_path):
    voters, tasks = restored_by_page(node_of(one, JOINED), tmp_path)
    assert voters == [JOINED, "second", "third"]
    assert tasks == [tasks_at(one.target)] * 3


@pytest.mark.parametrize("name", [*FOUNDERS, JOINED])
def test_each_member_without_a_majority_saves_its_own_state(three, tmp_path, name):
    taskraft("put", "emails", "before", "--target", three.target)
    expected = tasks_at(three.target)
    sender = node_of(three, name)
    three.wait_until(lambda: has_applied_all(three, sender), f"{name} has the task")
    others = [node for node in three.nodes if node is not sender]
    file = str(tmp_path / "tasks.snapshot")
    for node in others:
        node.pause()
    try:
        three.wait_until(lambda: not sender.state().leader, f"{name} has no leader")
        taskraft("snapshot", "save", file, "--local", "--target", sender.address)
    finally:
        for node in others:
            node.resume()
    three.wait_ready()
    assert re.search(rf"\b{expected} tasks in 1 tubes", taskraft("snapshot", "verify", file))


def has_applied_all(cluster, node):
    state, leader = node.state(), cluster.leader()
    led = leader.state() if leader else None
    return state and led and state.state.applied_index >= led.state.applied_index
