"""Transfer entries to a member whose log is damaged.

A member answers without a leader and without a quorum, also while its own log is damaged. The
answers change neither terms nor votes, and no member counts a request as a start of its sender.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

import google_crc32c

from taskraft_replication.core.types import (
    NO_MEMBER,
    Entry,
    LogIndex,
    MemberId,
    MemberInfo,
    Roster,
    Term,
)
from taskraft_replication.errors import MessageMalformed
from taskraft_replication.peers.codec import add_entries, decode_entry
from taskraft_replication.peers.contract import Membership
from taskraft_replication.peers.grpc_peers import channel_to
from taskraft_replication.peers.handshake import hello_to
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.storage.log_parts import LogKnowledge, LogRange, ReadableLog, TermRun
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from taskraft_replication.stubs.raft.v1.raft_pb2_grpc import PeerServiceStub

PIECE_BYTES: Final = 64 << 10
"""Maximum size of the records in a piece, in bytes; a larger entry is sent alone. The piece is read
and encoded on the event loop, which takes about 5 ms if the entries are small."""
DESCRIBE_SECONDS: Final = 5.0
"""Maximum time for the description of a log, which a member has in memory."""
STALL_SECONDS_MAX: Final = 30.0
"""Maximum time for the next piece."""
RUNS_MAX: Final = 100_000
"""Maximum number of runs that are sent: one for each term, and one more for each damaged place."""

_NUMBERS: Final = Struct("<QQQ")  # index, term, kind


@dataclass(slots=True, frozen=True)
class OfferedLog:
    """The log of a member, for members whose logs are damaged."""

    membership: Membership
    roster: Roster
    log: ReadableLog
    leader: MemberId = NO_MEMBER
    """Member that leads as far as this member knows."""


@dataclass(slots=True, frozen=True)
class DescribedLog:
    """The log of a peer, as the peer describes it."""

    knowledge: LogKnowledge
    leader: MemberId
    """Member that leads as far as the peer knows; ``NO_MEMBER``: none."""


def description_of(offered: OfferedLog) -> pb.DescribeLogResponse:
    """Return the answer to ``DescribeLog``."""
    known = offered.log.knowledge()
    runs = known.readable[-RUNS_MAX:]
    return pb.DescribeLogResponse(
        runs=[pb.TermRun(first=run.first, last=run.last, term=run.term) for run in runs],
        leader=offered.leader,
        commit=known.commit,
    )


async def offer_entries(
    log: ReadableLog, request: pb.FetchEntriesRequest
) -> AsyncIterator[pb.FetchEntriesResponse]:
    """Yield the wanted entries.

    Raises:
        Compacted, EntryUnavailable, LogDamaged: see ``ReadableLog.entries``.
        MessageMalformed: the range is not valid.
    """
    first, last = LogIndex(request.first), LogIndex(request.last)
    if not 0 < first <= last:
        raise MessageMalformed(f"there are no entries from {first} to {last}")
    while first <= last:
        entries = log.entries(first, LogIndex(last + 1), PIECE_BYTES)
        piece = pb.FetchEntriesResponse(crc32c=_checksum(entries))
        add_entries(piece, entries)
        yield piece
        first = LogIndex(entries[-1].index + 1)


async def describe_log(
    peer: MemberInfo, own: Membership, security: PeerSecurity | None
) -> DescribedLog:
    """Ask a peer for the readable entries of its log.

    Raises:
        grpc.aio.AioRpcError: the peer refused or did not answer.
        MessageMalformed: the answer is not valid.
    """
    async with channel_to(peer.peer_address, peer.name, security) as channel:
        request = pb.DescribeLogRequest(hello=hello_to(peer.member, own))
        answer = await PeerServiceStub(channel).DescribeLog(request, timeout=DESCRIBE_SECONDS)
    runs: list[TermRun] = []
    last, term = 0, 1
    for run in answer.runs:
        if not last < run.first <= run.last or run.term < term:
            raise MessageMalformed(f"a run of entries {run.first} to {run.last} is out of place")
        runs.append(TermRun(LogIndex(run.first), LogIndex(run.last), Term(run.term)))
        last, term = run.last, run.term
    knowledge = LogKnowledge(tuple(runs), LogIndex(answer.commit))
    return DescribedLog(knowledge, MemberId(answer.leader))


async def fetch_entries(
    peer: MemberInfo, own: Membership, security: PeerSecurity | None, wanted: LogRange
) -> AsyncIterator[Sequence[Entry]]:
    """Yield the wanted entries of a peer's log, in order and complete.

    Raises:
        grpc.aio.AioRpcError: the peer refused or did not answer.
        MessageMalformed: an answer is damaged, or the entries are not those that were wanted.
        TimeoutError: the peer sends nothing.
    """
    async with channel_to(peer.peer_address, peer.name, security) as channel:
        hello = hello_to(peer.member, own)
        request = pb.FetchEntriesRequest(hello=hello, first=wanted.first, last=wanted.last)
        pieces = aiter(PeerServiceStub(channel).FetchEntries(request))
        expected = wanted.first
        while expected <= wanted.last:
            async with asyncio.timeout(STALL_SECONDS_MAX):
                piece = await anext(pieces, None)
            if piece is None:
                raise MessageMalformed(f"the peer ended before entry {expected}")
            entries = [decode_entry(each) for each in piece.entries]
            _check_piece(entries, expected, wanted.last, piece.crc32c)
            yield entries
            expected = LogIndex(entries[-1].index + 1)


def _check_piece(entries: Sequence[Entry], first: LogIndex, last: LogIndex, crc: int) -> None:
    if [entry.index for entry in entries] != [*range(first, first + len(entries))]:
        raise MessageMalformed(f"the entries from {first} on are out of place")
    if not entries or entries[-1].index > last:
        raise MessageMalformed(f"other entries than {first} to {last} were sent")
    if _checksum(entries) != crc:
        raise MessageMalformed(f"the entries from {first} on fail their checksum")


def _checksum(entries: Sequence[Entry]) -> int:
    crc = 0
    for entry in entries:
        numbers = _NUMBERS.pack(entry.index, entry.term, entry.kind.value)
        crc = google_crc32c.extend(google_crc32c.extend(crc, numbers), entry.data)
    return crc
