"""A member asks its peers for the damaged entries of its log until the log is complete.

The stored roster has outdated addresses, and the settings have the current ones.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from dataclasses import replace

import pytest

from taskraft_replication.core.types import ConfState, LogIndex, MemberId, MemberInfo, Term
from taskraft_replication.errors import LogDamaged
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.node.log_repair import LogRepair, LogRepairResult
from taskraft_replication.peers.contract import Membership
from taskraft_replication.peers.log_transfer import OfferedLog
from taskraft_replication.peers.transport import GrpcTransport
from taskraft_replication.storage.log_copy import LogCopy
from taskraft_replication.storage.log_parts import LogKnowledge, TermRun
from tests.replication.log_on_disk import Log, entry
from tests.replication.storage.test_damaged_log import flip

pytestmark = pytest.mark.real_time

LAST, BAD = 60, 40
WHOLE = LogKnowledge((TermRun(LogIndex(2), LogIndex(LAST), Term(1)),), LogIndex(1))


class HeldCopy:
    """The undamaged log of a peer."""

    def __init__(self) -> None:
        self.term = 1
        """Term of the damaged entry when it is read."""
        self.is_failing = False
        self.reads = 0

    def knowledge(self) -> LogKnowledge:
        return WHOLE

    def entries(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> list:
        self.reads += 1
        if self.is_failing:
            raise OSError(errno.EIO, "bad sector")
        return [entry(index, self.term) for index in range(lo, hi)]


class Damaged:
    """A member whose log lacks one entry, and two peers that have the entry."""

    def __init__(self, path) -> None:
        self.path = path
        self.transports = [GrpcTransport(), GrpcTransport()]
        self.copies = [HeldCopy(), HeldCopy()]
        self.reports: list[str] = []

    async def start(self) -> None:
        infos = [MemberInfo(MemberId(1), "m1", "127.0.0.1:1")]
        for number, transport in enumerate(self.transports, 2):
            port = await transport.start("127.0.0.1:0")
            infos.append(MemberInfo(MemberId(number), f"m{number}", f"127.0.0.1:{port}"))
        self.roster = roster_of(infos)
        # The nodes have moved since, and the operator has configured their new addresses.
        stored = roster_of([replace(info, peer_address="127.0.0.1:1") for info in infos])
        founders = ConfState(tuple(info.member for info in infos), roster=stored)
        self.log = Log(self.path, founders=founders)
        self.log.append_each(2, LAST)
        flip(self.log, BAD)
        for number in (2, 3):
            self.offer(number)
        members = {info.member: info for info in infos}
        self.config = NodeConfig("test", MemberId(1), self.path, members, segment_bytes=1 << 12)
        self.begin()

    def begin(self) -> None:
        """Begin the repair of the log."""
        self.repair = LogRepair(self.config, LogIndex(1), None)

    def offer(self, number: int, leader: int = 0, **identity) -> None:
        own = replace(Membership("test", 0, MemberId(number), 1), **identity)
        log = self.copies[number - 2]
        self.transports[number - 2].offer_log(OfferedLog(own, self.roster, log, MemberId(leader)))

    async def attempt(self) -> LogRepairResult | None:
        return await self.repair.attempt(self.reports.append)

    def is_whole(self) -> bool:
        try:
            self.log.open()
        except LogDamaged:
            return False
        return self.log.read() == [entry(index) for index in range(2, LAST + 1)]


@pytest.fixture
async def member(tmp_path):
    member = Damaged(tmp_path)
    await member.start()
    yield member
    for transport in member.transports:
        await transport.stop()


async def test_a_missing_entry_is_fetched(member):
    assert await member.attempt() is LogRepairResult.COMPLETE
    assert member.is_whole()


async def test_a_log_whose_entries_are_whole_is_written_again(member):
    """The header of a segment is damaged: the log does not open, and no peer has to help."""
    flip(member.log, BAD)
    assert member.is_whole()
    member.log.damage(3, segment=0)
    assert not member.is_whole()
    for copy in member.copies:
        copy.is_failing = True
    member.begin()
    assert await member.attempt() is LogRepairResult.COMPLETE
    assert member.is_whole()


async def test_after_a_failure_another_peer_is_asked(member):
    """The first peer describes the entry, but cannot read it."""
    member.copies[0].is_failing = True
    assert await member.attempt() is None
    assert "bad sector" in member.reports[-1]
    assert await member.attempt() is LogRepairResult.COMPLETE
    assert member.is_whole()


async def test_entries_of_a_log_that_has_changed_are_refused(member):
    """Between description and transfer, a leader of a later term has replaced the entry."""
    member.copies[0].term = 2
    assert await member.attempt() is None
    assert "the log of m2 has changed" in member.reports[-1]
    assert not member.is_whole()
    assert await member.attempt() is LogRepairResult.COMPLETE
    assert member.is_whole()


async def test_a_text_that_stays_the_same_is_logged_once(member, caplog):
    for transport in member.transports:
        await transport.stop()
    for _ in range(3):
        assert await member.attempt() is None
    text = "the log lacks entry 40, which no other member has sent; no answer from m2, m3"
    assert member.reports == [text] * 3
    assert caplog.messages.count(text) == 1


async def test_a_full_disk_keeps_the_damaged_log_and_the_copy_is_tried_again(member, monkeypatch):
    before = {path: path.read_bytes() for path in member.log.segments}

    def fail(copy, entries) -> None:
        add(copy, entries)
        copy._write()
        raise OSError(errno.ENOSPC, "no space left")

    add = LogCopy.add
    with monkeypatch.context() as patched:
        patched.setattr(LogCopy, "add", fail)
        assert await member.attempt() is None
    assert "no space left" in member.reports[-1]
    assert {path: path.read_bytes() for path in member.log.segments} == before
    assert await member.attempt() is LogRepairResult.COMPLETE
    assert member.is_whole()


async def test_a_disk_that_cannot_write_ends_the_repair(member, monkeypatch):
    def fail(copy, entries) -> None:
        raise OSError(errno.EIO, "bad sector")

    monkeypatch.setattr(LogCopy, "add", fail)
    with pytest.raises(OSError, match="bad sector"):
        await member.attempt()


async def test_a_leader_counts_once_it_was_named_for_two_election_timeouts(member):
    """A follower names a leader that has crashed until its election timeout."""
    member.offer(3, leader=2)
    assert [await member.attempt() for _ in range(2)] == [None, None]
    member.offer(3)
    member.copies[0].is_failing = member.copies[1].is_failing = True
    assert await member.attempt() is None
    member.offer(3, leader=2)
    results = [await member.attempt() for _ in range(3)]
    assert results == [None, None, LogRepairResult.CLUSTER_WORKS]


async def test_a_member_that_all_others_refuse_must_be_replaced(member):
    """Meanwhile, the others were replaced: other members have their addresses."""
    member.offer(2, member_id=MemberId(4))
    member.copies[1].is_failing = True
    assert await member.attempt() is None, "one of the others may still help"
    member.offer(3, member_id=MemberId(5))
    with pytest.raises(LogDamaged, match="m2: this is member 4, not 2; m3: this is member 5"):
        await member.attempt()


async def test_a_member_that_all_others_refuse_for_another_reason_waits(member):
    member.offer(2, cluster_id="other")
    member.offer(3, cluster_id="other")
    assert await member.attempt() is None
    assert "no answer from m2, m3" in member.reports[-1]


async def test_an_error_after_the_switch_keeps_the_complete_log(member, monkeypatch):
    """The log start was replaced, and the sync of the directory has failed."""

    def fail(copy) -> None:
        finish(copy)
        raise OSError(errno.EIO, "the disk failed to sync")

    finish = LogCopy.finish
    with monkeypatch.context() as patched:
        patched.setattr(LogCopy, "finish", fail)
        with pytest.raises(OSError, match="failed to sync"):
            await member.attempt()
    assert member.is_whole()


async def test_a_signal_during_the_switch_keeps_the_complete_log(member, monkeypatch):
    """The thread continues after the cancellation of the coroutine that waits for it."""
    begun, resumed, ended = threading.Event(), threading.Event(), threading.Event()

    def finish_late(copy) -> None:
        begun.set()
        resumed.wait()
        finish(copy)
        ended.set()

    finish = LogCopy.finish
    monkeypatch.setattr(LogCopy, "finish", finish_late)
    attempt = asyncio.create_task(member.attempt())
    await asyncio.to_thread(begun.wait)
    attempt.cancel()
    await asyncio.wait((attempt,))
    resumed.set()
    await asyncio.to_thread(ended.wait)
    assert member.is_whole()
