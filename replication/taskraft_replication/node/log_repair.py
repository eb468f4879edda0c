"""Complete the damaged log of a member with entries of other members, before it takes part.

The member keeps its identity, because its vote is undamaged and because the completed log has each
entry that the member has acknowledged. Until the end of the repair, the member neither votes nor
answers peers, except that it offers its own readable entries: several members may be damaged.

A member whose cluster works without it becomes a new member instead, see ``node.replacement``.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from enum import Enum
from math import ceil
from typing import Final

import grpc
from grpc import aio

from taskraft_replication.core.types import (
    NO_MEMBER,
    Entry,
    LogIndex,
    MemberId,
    MemberInfo,
    Roster,
    value,
)
from taskraft_replication.errors import LogDamaged, MessageMalformed
from taskraft_replication.membership.roster import with_configured
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.peers.contract import Membership, process_id
from taskraft_replication.peers.log_transfer import (
    DescribedLog,
    OfferedLog,
    describe_log,
    fetch_entries,
)
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.storage.damaged_log import DamagedLog
from taskraft_replication.storage.filesystem import FileSystem
from taskraft_replication.storage.log_copy import LogCopy
from taskraft_replication.storage.log_parts import LogRange, TermRun, are_in, plan_repair
from taskraft_replication.storage.membership_history import MembershipHistory
from taskraft_replication.storage.metadata import Metadata
from taskraft_replication.storage.record import record_bytes

PAUSE_SECONDS: Final = 0.5
"""Pause between two attempts, in seconds."""
READ_BYTES: Final = 1 << 20
NO_START: Final = 0
"""Incarnation in the requests of a repair, which the receivers do not count as a start."""
REFUSED: Final = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED)
"""Statuses of permanent refusals: the peer has become another member, or knows that this member was
removed or has lost its data directory."""

_log = logging.getLogger(__name__)


class LogRepairResult(Enum):
    """How the repair of a log ended."""

    COMPLETE = "complete"
    """The log has all entries again."""
    CLUSTER_WORKS = "cluster works"
    """The other members have a leader, so that this member can be replaced."""


async def repair_log(
    config: NodeConfig,
    applied: LogIndex,
    security: PeerSecurity | None,
    offer: Callable[[OfferedLog], object],
    report: Callable[[str], object],
) -> LogRepairResult:
    """Complete the log; retry until all entries were found or the other members have a leader.

    Args:
        config: the settings of the member.
        applied: index of its durable state. The member needs no damaged entry up to there.
        security: certificates of the peer port.
        offer: lets other members read the entries of this member meanwhile.
        report: receives what is missing, in one line.

    Raises:
        LogDamaged: the log cannot be completed, or there is no other member; the member must be
            replaced.
        OSError: the disk cannot be used.
    """
    repair = await asyncio.to_thread(LogRepair, config, applied, security)
    offer(repair.offered)
    while True:
        result = await repair.attempt(report)
        if result is not None:
            return result
        await asyncio.sleep(PAUSE_SECONDS)


@value
class _Source:
    """Missing entries, and the peer that has them."""

    wanted: LogRange
    peer: MemberInfo
    described: Sequence[TermRun]
    """The readable entries of the peer."""


class LogRepair:
    """The repair of one damaged log; see ``repair_log``.

    The constructor blocks.
    """

    def __init__(
        self, config: NodeConfig, applied: LogIndex, security: PeerSecurity | None
    ) -> None:
        self._fs: FileSystem = config.open_files(config.data_directory)
        self._metadata = Metadata(self._fs, f"raft-{config.group_id}")
        self._security = security
        self._segment_bytes = config.segment_bytes
        self._log = DamagedLog(self._fs, self._metadata)
        self._start = self._log.start_behind(applied)
        self._gaps = self._log.gaps(self._start)
        roster = _roster_of(self._metadata)
        roster = with_configured(roster, config.members, roster)
        # A leader that has crashed, or has lost its majority, may still be named for two election
        # timeouts.
        election_seconds = config.election_ticks * config.tick_ms / 1000
        self._led_attempts_min = 1 + ceil(2 * election_seconds / PAUSE_SECONDS)
        self._led_attempts = 0
        """Number of the last consecutive attempts in which another member had a leader."""
        self._told = ""
        """The last text that was reported."""
        self._refusals: dict[MemberId, str] = {}
        """Why the other members refuse this one, as of the last attempt."""
        self._peers = [
            info for info in roster.members if info.member != config.member_id and info.peer_address
        ]
        if not self._peers:
            raise LogDamaged("there is no other member that could complete the log")
        membership = Membership(
            config.cluster_id,
            config.group_id,
            config.member_id,
            NO_START,
            self._metadata.directory_id(""),
            config.members[config.member_id].peer_address,
            program=config.program,
            start_id=process_id(),
        )
        self.offered = OfferedLog(membership, roster, self._log)

    async def attempt(self, report: Callable[[str], object]) -> LogRepairResult | None:
        """Ask all members once; return None if another attempt is needed.

        Raises:
            LogDamaged: the other members refuse this member.
        """
        self._refusals.clear()
        described = await asyncio.gather(*map(self._describe, self._peers))
        if len(self._refusals) == len(self._peers):
            reasons = "; ".join(sorted(self._refusals.values()))
            raise LogDamaged(f"all other members refuse this member: {reasons}")
        own = self.offered.membership.member_id
        if any(each and each.leader not in {NO_MEMBER, own} for each in described):
            self._led_attempts += 1
            is_led = self._led_attempts >= self._led_attempts_min
            return LogRepairResult.CLUSTER_WORKS if is_led else None
        self._led_attempts = 0
        sources = self._sources(described, report)
        if sources is None:
            return None
        try:
            copy = await self._copy(sources)
        except (aio.AioRpcError, MessageMalformed, OSError) as error:  # includes TimeoutError
            if isinstance(error, OSError) and not is_transient(error):
                raise
            reason = error.details() if isinstance(error, aio.AioRpcError) else str(error)
            reason = reason or type(error).__name__
            self._tell(f"an attempt to complete the log has failed: {reason}", report)
            return None
        # After an error or a cancellation, the switch may have happened, so the copy stays.
        await asyncio.to_thread(copy.finish)
        _log.warning("the log is complete again: %s", _listed(self._gaps) or "no entry was missing")
        return LogRepairResult.COMPLETE

    def _sources(
        self, described: Sequence[DescribedLog | None], report: Callable[[str], object]
    ) -> Mapping[LogIndex, _Source] | None:
        """Return the missing entries, by the first index of each range; None: no peer has some."""
        others = [None if each is None else each.knowledge for each in described]
        parts, missing = plan_repair(self._log.knowledge(), self._gaps, others)
        if not missing:
            return {
                wanted.first: _Source(wanted, self._peers[position], known.readable)
                for wanted, position in parts
                if (known := others[position]) is not None
            }
        silent = [p.name for p, each in zip(self._peers, described, strict=True) if not each]
        text = f"the log lacks {_listed(missing)}, which no other member has sent"
        text += f"; no answer from {', '.join(silent)}" if silent else ""
        self._tell(text, report)
        return None

    def _tell(self, text: str, report: Callable[[str], object]) -> None:
        """Report a text, and log the text if it has changed: an attempt is made twice a second."""
        report(text)
        if text != self._told:
            _log.warning("%s", text)
        self._told = text

    async def _describe(self, peer: MemberInfo) -> DescribedLog | None:
        try:
            return await describe_log(peer, self.offered.membership, self._security)
        except (aio.AioRpcError, MessageMalformed) as error:
            if isinstance(error, aio.AioRpcError) and error.code() in REFUSED:
                self._refusals[peer.member] = f"{peer.name}: {error.details()}"
            reason = error.details() if isinstance(error, aio.AioRpcError) else str(error)
            _log.debug("%s does not describe its log: %s", peer.name, reason)
            return None

    async def _copy(self, sources: Mapping[LogIndex, _Source]) -> LogCopy:
        """Write the whole log beside the damaged one; delete the copy after an error.

        ``sources``: the missing entries, by the first index of each range.
        """
        log = self._log
        end_bytes = 0
        copy = await asyncio.to_thread(
            LogCopy, self._fs, self._metadata, self._start, log.commit, self._segment_bytes
        )
        try:
            at = LogIndex(self._start.index + 1)
            while at <= log.last:
                source = sources.get(at)
                if source is None:
                    at = await asyncio.to_thread(self._copy_own, copy, at)
                else:
                    end_bytes += await self._copy_from(source, copy)
                    at = LogIndex(source.wanted.last + 1)
            log.check_end(end_bytes)
        except BaseException:
            await asyncio.to_thread(copy.discard)
            raise
        return copy

    async def _copy_from(self, source: _Source, copy: LogCopy) -> int:
        """Copy entries of a peer; return the length of those that may be in the damaged end.

        After a failure, the next attempt asks this peer last.
        """
        end_bytes = 0
        try:
            async for entries in self._fetched(source):
                await asyncio.to_thread(copy.add, entries)
                end_bytes += sum(
                    record_bytes(len(each.data))
                    for each in entries
                    if each.index >= self._log.end_first
                )
        except (aio.AioRpcError, MessageMalformed, TimeoutError):
            self._peers.remove(source.peer)
            self._peers.append(source.peer)
            raise
        return end_bytes

    async def _fetched(self, source: _Source) -> AsyncIterator[Sequence[Entry]]:
        """Yield the missing entries that a peer has.

        Raises:
            MessageMalformed: they are not those that the peer has described.
        """
        own, peer = self.offered.membership, source.peer
        async for entries in fetch_entries(peer, own, self._security, source.wanted):
            if not are_in(entries, source.described):
                raise MessageMalformed(f"the log of {peer.name} has changed meanwhile")
            yield entries

    def _copy_own(self, copy: LogCopy, first: LogIndex) -> LogIndex:
        """Copy readable entries of this log; return the index after them."""
        entries = self._log.entries(first, LogIndex(self._log.last + 1), READ_BYTES)
        copy.add(entries)
        return LogIndex(entries[-1].index + 1)


def is_transient(error: OSError) -> bool:
    """Return whether a later attempt may succeed: the disk was full, or a peer sent nothing."""
    return isinstance(error, TimeoutError) or error.errno in {errno.ENOSPC, errno.EDQUOT}


def _roster_of(metadata: Metadata) -> Roster:
    memberships = MembershipHistory(metadata.memberships())
    return memberships.at(memberships.last_index).roster


def _listed(ranges: Sequence[LogRange]) -> str:
    return ", ".join(map(str, ranges))
