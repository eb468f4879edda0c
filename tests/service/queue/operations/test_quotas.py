"""Limits on the number of objects: in the cluster, and of one principal."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from taskraft_service.queue.entities.ownership import Ownership
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import OBJECT_LIMITS, Limits
from taskraft_service.queue.operations.feed import CommitCursor
from taskraft_service.queue.operations.groups import CancelGroup, CreateGroup
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.schedules import CreateSchedule, DeleteSchedule
from taskraft_service.queue.operations.sessions import CloseSession, OpenSession
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.schedule_registry import Overlap, ScheduleSpec
from taskraft_service.queue.store.keys import TUBE_OWNER, prefix_stop
from tests.service.queue.memory_store import MemoryStore

SECURITY_PAGE = Path(__file__).parents[4] / "docs/security.md"
DAILY = ScheduleSpec("mail", "daily", Overlap.ALLOW, False, b"x")


def owned_by(owner):
    return Ownership(owner, changes_all=not owner)


@dataclass
class Kind:
    """A kind of objects that principals own.

    ``create`` returns the command that creates an object of a name and an owner; ``remove`` the
    commands after which the object of a name does not count any more.
    """

    create: Any
    remove: Any


KINDS = {
    "tubes": Kind(
        lambda name, owner: CreateTube(name, TubeKind.FIFO, TubeOptions(), owner=owner),
        lambda name: [DropTube(name)],
    ),
    "sessions": Kind(
        lambda name, owner: OpenSession(name, owner=owner), lambda name: [CloseSession(name)]
    ),
    "schedules": Kind(
        lambda name, owner: CreateSchedule(name, DAILY, 500, owner=owned_by(owner)),
        lambda name: [DeleteSchedule(name)],
    ),
    "groups": Kind(
        lambda name, owner: CreateGroup(name, owner=owned_by(owner)),
        lambda name: [CancelGroup(name)],
    ),
    "consumers": Kind(
        lambda name, owner: CommitCursor(name, "", {0: 0}, 1_000_000, owner=owner),
        lambda name: [CommitCursor(name, "", None, 0)],
    ),
}


class Node:
    def __init__(self, name, **limits):
        self.kind = KINDS[name]
        self.limits = Limits(**limits)
        self.store = MemoryStore()
        self.queue = Queue(self.store, self.limits)
        self.index = 0
        self.do(Startup(1, 0, "feed", 1))

    def do(self, *entry):
        self.index += 1
        return self.queue.apply(self.index, self.index, entry)

    def create(self, name, owner):
        (result,) = self.do(self.kind.create(name, owner))
        return result if isinstance(result, Refusal) else None

    def remove(self, name):
        results = self.do(*self.kind.remove(name))
        assert not any(isinstance(result, Refusal) for result in results)

    def restart(self):
        self.store.write(self.queue.collect_writes())
        self.queue = Queue(self.store, self.limits)


def full(name):
    """Return a node on which the principal ``a`` has two objects, the maximum."""
    node = Node(name, **{f"{name}_share_max": 2})
    assert node.create("a1", "a") is None
    assert node.create("a2", "a") is None
    return node


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_principal_has_at_most_its_share(name, restarts):
    node = full(name)
    if restarts:
        node.restart()
    refusal = node.create("a3", "a")
    assert refusal.reason is Reason.LIMIT_REACHED
    assert refusal.metadata == {"limit": f"{name}_share_max", "value": "2", "principal": "a"}
    assert '"a" has 2 ' in refusal.message


@pytest.mark.parametrize("name", KINDS)
def test_others_have_a_share_of_their_own(name):
    node = full(name)
    assert node.create("b1", "b") is None
    assert node.create("b2", "b") is None
    assert node.create("b3", "b").metadata["principal"] == "b"


@pytest.mark.parametrize("name", KINDS)
def test_objects_without_an_owner_have_no_share(name):
    node = full(name)
    assert [node.create(f"n{number}", "") for number in range(5)] == [None] * 5


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_removed_object_does_not_count(name, restarts):
    node = full(name)
    if restarts:
        node.restart()
    node.remove("a1")
    assert node.create("a3", "a") is None
    assert node.create("a4", "a").reason is Reason.LIMIT_REACHED
    node.remove("a2")
    node.remove("a3")
    assert [node.create(again, "a") for again in ("a1", "a2")] == [None, None]
    assert node.create("a4", "a").reason is Reason.LIMIT_REACHED


@pytest.mark.parametrize("name", KINDS)
def test_a_refused_object_changes_nothing(name):
    refused, idle = full(name), full(name)
    assert refused.create("a3", "a").reason is Reason.LIMIT_REACHED
    idle.do()
    assert refused.queue.digest() == idle.queue.digest()


@pytest.mark.parametrize("name", KINDS)
def test_the_cluster_has_a_maximum_for_all(name):
    node = Node(name, **{f"{name}_max": 2})
    assert [node.create(one, one) for one in "ab"] == [None, None]
    refusal = node.create("c", "c")
    assert refusal.reason is Reason.LIMIT_REACHED
    assert refusal.metadata == {"limit": f"{name}_max", "value": "2"}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_truncated_tube_counts_for_its_owner(restarts):
    node = full("tubes")
    node.do(TruncateTube("a1"))
    if restarts:
        node.restart()
    assert node.create("a3", "a").reason is Reason.LIMIT_REACHED
    node.remove("a1")
    assert node.create("a3", "a") is None


def test_a_tube_that_exists_is_returned_at_the_maximum():
    node = full("tubes")
    again = CreateTube("a1", TubeKind.FIFO, TubeOptions(), if_not_exists=True, owner="a")
    (result,) = node.do(again)
    assert result.existed


def test_nothing_is_left_of_a_dropped_tube_in_the_store():
    node = full("tubes")
    node.restart()
    assert [*node.store.scan(TUBE_OWNER, prefix_stop(TUBE_OWNER))]
    node.remove("a1")
    node.remove("a2")
    node.restart()
    assert not [*node.store.scan(TUBE_OWNER, prefix_stop(TUBE_OWNER))]


def kept(node):
    return [view.name for view in node.queue.groups()]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_new_group_replaces_the_first_ended_one_of_its_owner(restarts):
    node = Node("groups", groups_share_max=2)
    for name in ("b1", "a1", "a2"):
        assert node.create(name, name[0]) is None
    for name in ("b1", "a2", "a1"):
        node.remove(name)
    if restarts:
        node.restart()
    assert node.create("a3", "a") is None
    assert kept(node) == ["a1", "a3", "b1"], "b1 ended first, but belongs to another principal"
    assert node.create("a4", "a") is None
    assert kept(node) == ["a3", "a4", "b1"]
    assert node.create("a5", "a").reason is Reason.LIMIT_REACHED


@pytest.mark.parametrize("restarts", [False, True])
def test_at_the_maximum_of_the_cluster_the_first_ended_group_is_replaced(restarts):
    node = Node("groups", groups_max=3)
    for name in ("a1", "b1", "n1"):
        assert node.create(name, name[0].strip("n")) is None
    for name in ("b1", "n1", "a1"):
        node.remove(name)
    if restarts:
        node.restart()
    left = [["a1", "a2", "n1"], ["a1", "a2", "a3"], ["a2", "a3", "a4"]]
    for name, names in zip(("a2", "a3", "a4"), left, strict=True):
        assert node.create(name, "a") is None
        assert kept(node) == names
    assert node.create("b2", "b").metadata["limit"] == "groups_max"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_group_that_ended_long_ago_does_not_count(restarts):
    node = full("groups")
    node.remove("a1")
    if restarts:
        node.restart()
    node.index += node.limits.group_retention_ms
    node.do()
    assert kept(node) == ["a2"]
    assert node.create("a3", "a") is None
    assert kept(node) == ["a2", "a3"]


CLUSTER_LIMITS = {"bulk_sweeps_share_max": "bulk_sweeps_open_max"}
"""Name of the limit of the whole cluster by the name of the limit of one principal, where the names
differ in more than ``_share``."""
SMALL = {"bulk_sweeps_share_max", "consumers_share_max"}
"""Shares of objects that each cost much."""


@pytest.mark.parametrize("owner", ["a", "b"])
def test_a_commit_changes_no_owner_of_a_consumer(owner):
    node = full("consumers")
    assert node.create("a1", owner) is None
    node.restart()
    assert node.create("a3", "a").reason is Reason.LIMIT_REACHED
    assert node.create("b1", "b") is None


def test_a_new_consumer_replaces_the_idle_ones_at_the_share_of_its_owner():
    node = Node("consumers", consumers_share_max=2)
    node.do(CommitCursor("idle", "", {0: 0}, 1, owner="a"))
    assert node.create("a2", "a") is None
    assert node.create("a3", "a") is None
    assert [one.name for one in node.queue._state.consumers] == ["a2", "a3"]


def test_one_principal_leaves_a_quarter_to_others():
    limits = Limits()
    shares = [name for name in OBJECT_LIMITS if name.endswith("_share_max")]
    assert {name.removesuffix("_share_max") for name in shares} == {*KINDS, "bulk_sweeps"}
    for name in shares:
        total = getattr(limits, CLUSTER_LIMITS.get(name) or name.replace("_share_max", "_max"))
        assert getattr(limits, name) <= total * 3 // 4
        assert name in SMALL or getattr(limits, name) > 10_000


def test_the_documentation_shows_the_limits():
    text = SECURITY_PAGE.read_text().replace(" ", "")
    limits = Limits()
    for name in KINDS:
        share, total = f"{name}_share_max", f"{name}_max"
        row = f"|{getattr(limits, share)}(`{share}`)|{getattr(limits, total)}(`{total}`)|"
        assert row in text
