"""The procedure of docs/upgrading.md works with each member as the first, the last and the leader.

tests/upgrade/test_rolling_upgrade.py has the case of founders in the order of their names.
"""

import re

import pytest

from taskraft import Client
from taskraft.cli.failures import CONFLICT
from tests.docs.documents import ROOT, Session, blocks
from tests.docs.member_commands import add, lead, leave_alone, node_of, taskraft
from tests.upgrade.load import Load
from tests.upgrade.next_build import next_build, this_build
from tests.upgrade.test_rolling_upgrade import (
    PUTS_PER_SECOND,
    check_older_build_refused,
    is_planned,
    wait_for,
)
from tools.local_cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(600)]

PAGE = "docs/upgrading.md"
NAMES = ("n1", "n2", "n3", "n4")
"""Three founders, and a member that has joined."""
SPEAKS_1 = "speaks cluster version 1"


@pytest.fixture(scope="module")
def later(tmp_path_factory):
    """The environment that starts the next build."""
    return next_build(tmp_path_factory.mktemp("build") / "next")


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """A cluster that each test leaves with nodes of this build, without a raise."""
    with LocalCluster(3, tmp_path_factory.mktemp("four") / "c") as cluster:
        add(cluster, NAMES[-1])
        with Client(cluster.target) as client:
            client.create_tube("load")
        yield cluster


def run_page(target):
    """Run the commands of the page against a cluster; return their output."""
    _, *commands = blocks(PAGE, (ROOT / PAGE).read_text())  # the first one starts a cluster
    assert [block.text.split()[2] for block in commands] == ["status", "upgrade", "settings"]
    with Session(beside=Session()) as session:
        session.environment["TASKRAFT_TARGET"] = target
        return "".join(session.run(block) for block in commands)


def await_active(cluster, name):
    """Wait until the status shows a member as the page says."""
    row = re.compile(rf"\b{name} +\w+ +\S+ +\d+ +0 +yes\b")
    cluster.wait_until(
        lambda: row.search(taskraft("cluster", "status", "--target", cluster.target)),
        f"the status shows {name} with ACTIVE yes and LAG 0",
    )


def replace(cluster, node, build):
    """Stop a node, and start another build on its data."""
    node.stop()
    node.environment = {**node.environment, **build}
    node.start()
    cluster.wait_ready()
    await_active(cluster, node.name)


def check_not_raised(cluster, name, reason):
    """The raise is refused, and the refusal and the status name the member that prevents it."""
    refusal = taskraft("cluster", "upgrade", "--yes", "--target", cluster.target, status=CONFLICT)
    assert f"{name} {reason}" in refusal
    assert "VERSION_TOO_LOW" in refusal
    status = taskraft("cluster", "status", "--target", cluster.target)
    assert f"cluster version not raised: {name} {reason}" in status


@pytest.mark.parametrize("place", range(len(NAMES)), ids=NAMES)
def test_each_member_is_the_first_and_the_last_with_and_without_the_leadership(four, later, place):
    first, *others = [node_of(four, name) for name in (*NAMES[place:], *NAMES[:place])]
    *_, last = others
    with Load(four.target, PUTS_PER_SECOND) as load:
        lead(four, first.name)
        for node in (first, *others[:-1]):
            replace(four, node, later)
        wait_for(four, lambda state: state.upgrade_blockers)
        check_not_raised(four, last.name, SPEAKS_1)
        lead(four, last.name)
        replace(four, last, later)
        wait_for(four, is_planned)
        lead(four, last.name)
        for node in (first, *others):
            replace(four, node, this_build())
        wait_for(four, lambda state: not state.planned_cluster_version)
    load.drain()
    assert load.errors == []
    assert load.taken == set(load.put)
    assert load.put


@pytest.mark.parametrize("late", [NAMES[0], NAMES[-1]])
def test_after_the_raise_the_data_of_each_member_needs_the_new_release(tmp_path, later, late):
    """The late member has not applied the raise; n5 is a learner."""
    with LocalCluster(3, tmp_path / "c") as cluster:
        taskraft("tube", "create", "emails", "--target", cluster.target)  # so the raise is held
        add(cluster, NAMES[-1])
        learner = cluster.joiner("n5")
        learner.start()
        cluster.wait_ready()
        for name in NAMES:
            replace(cluster, node_of(cluster, name), later)
        wait_for(cluster, lambda state: state.upgrade_blockers)
        check_not_raised(cluster, learner.name, SPEAKS_1)
        replace(cluster, learner, later)
        wait_for(cluster, is_planned)
        node = node_of(cluster, late)
        lead(cluster, next(name for name in NAMES if name != late))
        node.pause()
        assert "cluster version 2\n" in run_page(cluster.target)
        node.kill()
        node.environment = {**node.environment, **this_build()}
        before = len(node.log.read_text())
        node.start()
        assert node.wait() == 1
        (line,) = [
            line for line in node.log.read_text()[before:].splitlines() if "taskraft: " in line
        ]
        assert line.endswith("run a release that speaks cluster version 2")
        replace(cluster, node, later)
        for other in cluster.nodes:
            if other is not learner:
                lead(cluster, other.name)
            cluster.wait_until(
                lambda other=other: other.state().cluster_version == 2, "the raise is applied"
            )
            other.stop()
            check_older_build_refused(other, this_build())
            other.environment = {**other.environment, **later}
            other.start()
            cluster.wait_ready()


def test_after_the_raise_a_node_of_the_previous_release_does_not_become_a_member(tmp_path, later):
    with LocalCluster(1, tmp_path / "c") as cluster:
        (founder,) = cluster.nodes
        replace(cluster, founder, later)
        wait_for(cluster, lambda state: state.cluster_version == 2)
        joiner = cluster.joiner("n2")
        joiner.start()
        assert joiner.wait() == 1
        assert "run a release that speaks cluster version 2" in joiner.tail()
        assert [member.name for member in founder.state().members] == [founder.name]
        joiner.environment = {**joiner.environment, **later}
        joiner.start()
        cluster.wait_ready()
        assert [member.name for member in founder.state().members] == [founder.name, "n2"]


@pytest.mark.parametrize("has_joined", [False, True], ids=["founder", "joined"])
def test_a_lone_node_is_upgraded_and_returns(tmp_path, later, has_joined):
    with LocalCluster(1, tmp_path / "c") as cluster:
        if has_joined:
            (founder,) = cluster.nodes
            add(cluster, "n2")
            leave_alone(cluster, founder)
        (node,) = cluster.nodes
        taskraft("tube", "create", "emails", "--target", node.address)
        for build in (later, this_build(), later):
            taskraft("put", "emails", "a task", "--target", node.address)
            replace(cluster, node, build)
        wait_for(cluster, is_planned)
        assert "cluster version 2\n" in run_page(node.address)
        node.stop()
        check_older_build_refused(node, this_build())
        node.environment = {**node.environment, **later}
        node.start()
        cluster.wait_ready()
        with Client(node.address) as client:
            assert client.tube("emails").count() == 3
