"""A member whose state is lost asks the others in turn, until one has sent a usable state."""

import asyncio
import errno
import threading
from dataclasses import replace

import pytest

from taskraft_replication.errors import (
    FormatUnknown,
    SnapshotBroken,
    SnapshotUnavailable,
    StateLost,
)
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.node import state_repair
from taskraft_replication.node.state_repair import repair_state
from taskraft_replication.peers import state_transfer
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.metadata import Metadata
from tests.replication.counting_machine import CountingMachine
from tests.replication.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

LOST = 3
SMALL = {"kept_entries": 4, "flush_entries": 20, "election_ticks": 50}


class LostMember:
    """A member of three whose state is lost, and whose log begins after the first entry."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.machine = CountingMachine()
        self.told = []
        """Reasons for which attempts have failed."""
        self.offered = []
        """The log that other members may read during the repair."""

    async def repair(self):
        cluster = self.cluster
        await repair_state(
            cluster.config(LOST), self.machine, None, self.offered.append, self.told.append
        )
        cluster.machines[LOST] = self.machine
        await cluster.start(LOST)
        await cluster.converged()

    def others(self):
        return [self.cluster.machines[member] for member in (1, 2)]


@pytest.fixture
async def lost(tmp_path, monkeypatch):
    monkeypatch.setattr(state_repair, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(state_repair, "first_peer", lambda _: 0)
    async with LocalCluster(tmp_path, 3, **SMALL) as cluster:
        leader = await cluster.led_for_good(1)
        while min(node.status().first for node in cluster.nodes.values()) <= 5:
            await asyncio.gather(*(leader.propose(b"x" * 500) for _ in range(20)))
        await cluster.converged()
        await cluster.stop(LOST)
        yield LostMember(cluster)


def refuse_once(machine, name, error):
    """Let a method of a machine fail once."""
    method = getattr(machine, name)

    def fail(*arguments):
        setattr(machine, name, method)
        raise error

    setattr(machine, name, fail)


@pytest.mark.shows_fault(
    "copies",
    "the member that is asked for a state has a damaged one, dies, or sends nothing",
    "asks the other members in turn, and begins with another one each time",
)
async def test_a_member_with_a_damaged_state_sends_nothing_and_the_next_one_is_asked(lost):
    refuse_once(lost.others()[0], "open_snapshot", SnapshotUnavailable("table 7 is damaged"))
    await lost.repair()
    assert lost.told == ["cannot use the state of m1: table 7 is damaged"]


async def test_damage_that_the_sender_finds_while_it_sends_ends_the_transfer(lost):
    content = lost.others()[0].open_snapshot()
    refuse_once(content, "read", SnapshotUnavailable("table 8 is damaged"))
    lost.others()[0].open_snapshot = lambda: content
    await lost.repair()
    assert lost.told == ["cannot use the state of m1: table 8 is damaged"]


async def test_a_received_state_with_a_damaged_block_is_refused_and_the_next_one_is_asked(lost):
    """Senders of older releases do not check what they send."""
    refuse_once(lost.machine, "stage_snapshot", SnapshotBroken("block 9 is damaged"))
    await lost.repair()
    assert lost.told == ["cannot use the state of m1: block 9 is damaged"]


async def test_members_that_have_moved_are_asked_at_their_configured_addresses(lost):
    cluster = lost.cluster
    config = cluster.config(LOST)
    metadata = Metadata(DiskFileSystem(config.data_directory), "raft-0")
    (*_, (index, conf_state)) = metadata.memberships()
    members = [replace(each, peer_address="127.0.0.1:1") for each in conf_state.roster.members]
    metadata.save_memberships([(index, replace(conf_state, roster=roster_of(members)))])
    await lost.repair()
    assert lost.told == []


async def test_the_state_of_another_release_is_refused_and_the_next_one_is_asked(lost):
    refuse_once(lost.machine, "stage_snapshot", FormatUnknown("the snapshot has format 1"))
    await lost.repair()
    assert lost.told == ["cannot use the state of m1: the snapshot has format 1"]


async def test_only_states_of_another_release_end_the_node(lost):
    for _ in lost.others():
        refuse_once(lost.machine, "stage_snapshot", FormatUnknown("the snapshot has format 1"))
    with pytest.raises(FormatUnknown, match="format 1"):
        await lost.repair()
    assert len(lost.told) == 2


async def test_a_member_that_is_busy_is_asked_again_after_a_state_of_another_release(lost):
    refuse_once(lost.machine, "stage_snapshot", FormatUnknown("the snapshot has format 1"))
    refuse_once(lost.others()[1], "open_snapshot", SnapshotUnavailable("busy"))
    await lost.repair()
    assert [reason.rpartition(": ")[2] for reason in lost.told] == [
        "the snapshot has format 1",
        "busy",
    ]


@pytest.mark.shows_fault(
    "copies",
    "no disk space for the damaged and the new state",
    "keeps the damaged copy, does not vote, tries again, and says so in `/readyz`",
)
async def test_a_disk_without_room_for_both_states_is_reported_and_tried_again(lost):
    for machine in (lost.machine, lost.machine):
        refuse_once(machine, "stage_snapshot", OSError(errno.ENOSPC, "No space left"))
    await lost.repair()
    assert [reason.split(": ")[0] for reason in lost.told] == [
        "cannot use the state of m1",
        "cannot use the state of m2",
    ]
    assert all("No space left" in reason for reason in lost.told)


async def test_no_whole_state_anywhere_is_tried_until_there_is_one(lost):
    for machine in (*lost.others(), *lost.others()):
        refuse_once(machine, "open_snapshot", SnapshotUnavailable("damaged"))
    await lost.repair()
    # The second attempt begins with the second member.
    assert [reason.split(": ")[0][-2:] for reason in lost.told] == ["m1", "m2", "m2", "m1"]


async def test_a_sender_that_dies_is_replaced_by_the_next_one(lost):
    content, reads = lost.others()[0].open_snapshot(), asyncio.Event()
    loop, dead = asyncio.get_running_loop(), threading.Event()

    def read(_offset, _size):
        loop.call_soon_threadsafe(reads.set)
        dead.wait(20)
        return b""

    content.read = read
    lost.others()[0].open_snapshot = lambda: content
    repair = asyncio.ensure_future(
        repair_state(
            lost.cluster.config(LOST), lost.machine, None, lost.offered.append, lost.told.append
        )
    )
    await reads.wait()
    killing = asyncio.ensure_future(lost.cluster.kill(1))
    await lost.cluster.until_seen(lambda: lost.told)
    dead.set()
    await asyncio.gather(repair, killing)
    assert lost.told[0].startswith("cannot use the state of m1: ")
    assert lost.machine.lines


async def test_a_sender_that_sends_nothing_is_replaced_by_the_next_one(lost, monkeypatch):
    monkeypatch.setattr(state_transfer, "STALL_SECONDS_MAX", 0.2)
    dead = threading.Event()
    content = lost.others()[0].open_snapshot()

    def read(_offset, _size):
        dead.wait(20)
        return b""

    content.read = read
    lost.others()[0].open_snapshot = lambda: content
    await repair_state(
        lost.cluster.config(LOST), lost.machine, None, lost.offered.append, lost.told.append
    )
    dead.set()
    assert lost.told == ["cannot use the state of m1: TimeoutError"]


async def test_a_member_alone_has_nobody_to_ask(tmp_path):
    async with LocalCluster(tmp_path, 1, **SMALL) as cluster:
        leader = await cluster.leader()
        await cluster.trimmed(leader, 5)
        await cluster.stop(1)
        with pytest.raises(StateLost, match="restore a backup"):
            await repair_state(cluster.config(1), CountingMachine(), None, print, print)
