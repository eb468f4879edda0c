"""Check what a probe finds, and that it does not influence the run."""

from random import Random

import pytest

from taskraft_replication.storage.group_storage import GroupStorage
from taskraft_replication.storage.membership_history import MembershipHistory
from taskraft_replication.storage.segment_log import SegmentLog
from tests.sim.disk import SimDisk
from tests.sim.probe import Probe
from tests.sim.seeds import run_seed
from tests.sim.violation import Violation
from tests.sim.world import World


def probed(rounds=40):
    """Write entries at a follower, and probe each write."""
    world = World(1, 3, is_scripted=True)
    leader = world.elect()
    for number in range(rounds):
        probe = Probe(leader, Random(number), number % 3)
        proposals = world.propose(leader, 2)
        world.until_done(proposals)
        world.elapse(20)
        leader.disk.watch(None)
        probe.check()
    world.settle()


def test_a_correct_member_has_no_findings(monkeypatch):
    starts = []

    open_storage = GroupStorage.open

    def noted(disk, *details):
        starts.append(disk)
        return open_storage(disk, *details)

    monkeypatch.setattr(GroupStorage, "open", noted)
    probed(rounds=40)
    assert len(starts) >= 40


def test_a_start_that_forgets_entries_is_found(monkeypatch):
    append = SegmentLog.append

    def without_sync(log, entries, commit):
        with monkeypatch.context() as patch:
            patch.setattr("tests.sim.disk.SimFile.sync", lambda _: None)
            return append(log, entries, commit)

    monkeypatch.setattr(SegmentLog, "append", without_sync)
    with pytest.raises(Violation, match=r"a start of|a crash of"):
        probed()


def test_a_forgotten_membership_change_is_found(monkeypatch):
    """The simulation once needed millions of steps to find this error.

    See ``test_stored_commit``.
    """
    add = MembershipHistory.add

    def forgetful(history, index, conf_state, durable):
        known = add(history, index, conf_state, durable)
        history._memberships = [each for each in known if each[0] <= index]
        return list(history._memberships)

    monkeypatch.setattr(MembershipHistory, "add", forgetful)
    failures = (run_seed(seed, 1500).failure for seed in range(60))
    assert "has forgotten that it has stored the change" in next(filter(None, failures))


def test_a_copy_of_a_disk_is_independent():
    disk = SimDisk(Random(1))
    disk.make_directory("d")
    disk.create("d/a").write(0, b"abc")
    disk.create("d/b").sync()
    disk.sync_directory("d")
    disk.rename("d/a", "d/c")
    copy = disk.copy(Random(2))
    copy.open("d/c").write(0, b"xyz")
    copy.remove("d/b")
    assert disk.read("d/c") == b"abc"
    assert disk.names("d") == ["b", "c"]
    copy.sync_directory("d")
    copy.lose_power()
    assert copy.names("d") == ["c"]
    disk.lose_power()
    assert disk.exists("d/b")
