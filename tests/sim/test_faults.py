"""Faults and checks that the simulation got after drills with real processes."""

from random import Random

import pytest

from tests.sim.disk import ReadFailed, SimDisk
from tests.sim.test_delays import commit_ms, settled
from tests.sim.violation import Violation
from tests.sim.world import Read


def test_only_the_chosen_reads_of_the_member_fail():
    disk, failures, read = SimDisk(Random(1)), [], []
    disk.create("a").write(0, b"content")
    disk.failing_reads = 1
    assert disk.read("a") == b"content", "a read of the simulation itself"
    for _ in range(2):
        with disk.read_by_member(failures.append):
            read.append(disk.open("a").read(0, 7))
    assert [type(each) for each in failures] == [ReadFailed]
    assert read == [b"content"]


def test_a_member_whose_read_fails_stops_and_starts_again():
    world, leader, _ = settled(1)
    leader.disk.failing_reads = 1
    name = next(iter(leader.disk._names))
    leader.act(lambda: leader.disk.read(name))
    assert not leader.is_running
    world.until(lambda: leader.is_running)
    assert leader.disk.failing_reads == 0


def test_a_narrow_link_delays_an_entry_by_its_size():
    world, leader, _ = settled(1)
    before_ms = commit_ms(world, leader)
    world.network.bytes_per_second = 1_000
    assert commit_ms(world, leader) > before_ms + 20
    world.network.heal()
    assert commit_ms(world, leader) < 20


def test_a_read_that_shows_other_tasks_than_the_model_is_found():
    world, leader, _ = settled(1)
    read = Read(world, leader)
    leader.driver.read_index(read)
    world.invariants.history.changes.append((leader.machine.applied_index, 7, b"lost"))
    with pytest.raises(Violation, match="other tasks"):
        world.until(read.done)


def test_a_sync_after_a_failed_sync_writes_only_later_data():
    """Linux marks the pages of a failed sync as clean, so a repeated sync writes nothing."""
    disk = SimDisk(Random(1))
    file = disk.create("a")
    file.write(0, b"before")
    file.sync()
    disk.sync_directory("")
    file.write(0, b"failed")
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="failed to sync"):
        file.sync()
    file.write(6, b" later")
    file.sync()
    assert disk.read("a") == b"failed later", "the page cache shows both"
    disk.lose_power()
    assert disk.read("a") == b"before later"
