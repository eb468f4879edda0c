"""Stream the content of a snapshot from one member to another.

The sender reads on a worker thread and limits its rate, so that other work continues. A broken
transfer is continued at the receiver's offset. The number of consecutive attempts without progress
is limited.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Final

import google_crc32c
import grpc
from grpc import aio

from taskraft_replication.core.types import (
    MemberId,
    Message,
    MessageKind,
    Snapshot,
    SnapshotMeta,
    Term,
)
from taskraft_replication.errors import SnapshotBroken
from taskraft_replication.machine import SnapshotReader
from taskraft_replication.membership.codec import encode_conf_state
from taskraft_replication.peers.codec import decode_snapshot_meta
from taskraft_replication.peers.contract import Membership, SnapshotSink
from taskraft_replication.peers.handshake import hello_to
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from taskraft_replication.stubs.raft.v1.raft_pb2_grpc import PeerServiceStub

CHUNK_BYTES: Final = 1 << 20
RATE_BYTES_PER_SECOND: Final = 64 << 20
"""Rate limit of one snapshot: half a gigabit per second, which leaves bandwidth for other traffic.
"""

ATTEMPT_SECONDS_MAX: Final = 600
"""Maximum duration of one attempt; the next attempt continues at its offset."""

STALL_SECONDS_MAX: Final = 30
"""Maximum time for the peer to accept one piece; the attempt ends after that."""

ATTEMPTS_MAX: Final = 20
"""Maximum consecutive attempts without progress, half a minute or more; after that, the Raft core
starts a new transfer.
"""

PAUSE_SECONDS: Final = 0.1
"""Pause before the next attempt, times the number of consecutive attempts without progress."""

_PASSING: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DATA_LOSS,
        # grpc.aio raises this error for a piece that is written when the peer has just ended the
        # call.
        grpc.StatusCode.INTERNAL,
    }
)
"""Status codes after which another attempt may succeed."""

_log = logging.getLogger(__name__)


def _reason(error: Exception) -> str:
    """Return why an attempt failed, in one line."""
    if isinstance(error, aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__


def header_of(message: Message, meta: SnapshotMeta, own: Membership) -> pb.SnapshotHeader:
    """Return the header of a transfer."""
    return pb.SnapshotHeader(
        hello=hello_to(message.to, own),
        term=message.term,
        index=meta.index,
        index_term=meta.term,
        conf_state=encode_conf_state(meta.conf_state),
        transfer_id=uuid.uuid4().hex,
    )


def announced_by(header: pb.SnapshotHeader) -> Message:
    """Return the snapshot message of the core that a transfer announces.

    Raises:
        MessageMalformed: the header is not valid.
    """
    return Message(
        MessageKind.SNAPSHOT,
        to=MemberId(header.hello.receiver),
        sender=MemberId(header.hello.sender),
        term=Term(header.term),
        snapshot=Snapshot(decode_snapshot_meta(header)),
    )


class _Breaks:
    """Logs why attempts of a transfer broke: of equal reasons, the first one and then the number.

    Progress, or another reason, ends the count.
    """

    def __init__(self) -> None:
        self._told: tuple[int, str] | None = None
        """The last logged break: its byte, and its reason."""
        self._repeated = 0

    def note(self, reached: int, reason: str) -> None:
        """Log or count a break at the byte ``reached``."""
        if self._told == (reached, reason):
            self._repeated += 1
            return
        self.end()
        self._told = reached, reason
        _log.info("snapshot transfer broke at byte %d and is continued: %s", reached, reason)

    def end(self) -> None:
        """Log the number of breaks that were counted."""
        if self._told is not None and self._repeated:
            reached, reason = self._told
            _log.info(
                "snapshot transfer broke at byte %d %d more times: %s",
                reached,
                self._repeated,
                reason,
            )
        self._told, self._repeated = None, 0


class SnapshotTransfer:
    """The transfer of one snapshot to one member, over any number of attempts.

    Args:
        channel: returns the channel to the member for the next attempt.
        header: the first message of each attempt.
        content: the snapshot.
        rate: maximum number of bytes per second.
    """

    def __init__(
        self,
        channel: Callable[[], aio.Channel],
        header: pb.SnapshotHeader,
        content: SnapshotReader,
        rate: int = RATE_BYTES_PER_SECOND,
    ) -> None:
        self._channel = channel
        self._header = header
        self._content = content
        self._rate = rate
        self._crcs = {0: 0}
        """Checksum of the content up to each offset reached."""
        self._reached = 0

    async def run(self) -> None:
        """Send the snapshot.

        Raises:
            grpc.aio.AioRpcError, SnapshotBroken, TimeoutError: the transfer failed.

        For a reason that repeats without progress, the log has the first line and a count.
        """
        breaks, fruitless = _Breaks(), 0
        try:
            while True:
                before = self._reached
                try:
                    await self._attempt()
                except (aio.AioRpcError, asyncio.InvalidStateError, TimeoutError) as error:
                    fruitless = 0 if self._reached > before else fruitless + 1
                    if fruitless >= ATTEMPTS_MAX or not _may_pass(error):
                        raise
                    breaks.note(self._reached, _reason(error))
                    await asyncio.sleep(PAUSE_SECONDS * fruitless)
                else:
                    return
        finally:
            breaks.end()

    async def _attempt(self) -> None:
        """Send the missing content, and wait until the peer has taken the state."""
        call = PeerServiceStub(self._channel()).SendSnapshot(timeout=ATTEMPT_SECONDS_MAX)
        try:
            await call.write(pb.SendSnapshotRequest(header=self._header))
            answer = await call.read()
            if isinstance(answer, pb.SendSnapshotResponse):
                offset = answer.content_bytes
                if offset not in self._crcs:
                    raise SnapshotBroken(f"the peer has {offset} bytes, which were never sent")
                self._reached = max(self._reached, offset)
                async for chunk in self._chunks(offset):
                    async with asyncio.timeout(STALL_SECONDS_MAX):
                        await call.write(chunk)
                await call.done_writing()
                await call.read()
            status = await call.code()
            if status is not grpc.StatusCode.OK:
                raise aio.AioRpcError(
                    status,
                    await call.initial_metadata(),
                    await call.trailing_metadata(),
                    details=await call.details(),
                )
        finally:
            call.cancel()

    async def _chunks(self, offset: int) -> AsyncIterator[pb.SendSnapshotRequest]:
        """Yield the pieces from ``offset`` at the limited rate; the last piece is empty."""
        async for piece in pieces_of(self._content, offset, self._crcs[offset], self._rate):
            yield piece
            self._crcs[piece.offset + len(piece.data)] = piece.crc32c


async def pieces_of(
    content: SnapshotReader, offset: int = 0, crc: int = 0, rate: int = RATE_BYTES_PER_SECOND
) -> AsyncIterator[pb.SendSnapshotRequest]:
    """Yield the pieces from ``offset``, at ``rate`` bytes per second; the last piece is empty.

    ``crc`` is the checksum of the content before ``offset``.
    """
    loop = asyncio.get_running_loop()
    begun, begun_at = loop.time(), offset
    while data := await asyncio.to_thread(content.read, offset, CHUNK_BYTES):
        crc = google_crc32c.extend(crc, data)
        yield pb.SendSnapshotRequest(offset=offset, data=data, crc32c=crc)
        offset += len(data)
        due = begun + (offset - begun_at) / rate
        await asyncio.sleep(max(0.0, due - loop.time()))
    yield pb.SendSnapshotRequest(offset=offset, crc32c=crc, last=True)


def _may_pass(error: Exception) -> bool:
    return not isinstance(error, aio.AioRpcError) or error.code() in _PASSING


async def take_chunk(sink: SnapshotSink, chunk: pb.SendSnapshotRequest) -> bool:
    """Write a piece to ``sink``; return whether it was the last.

    Raises:
        SnapshotBroken: the piece does not continue the content.
    """
    if chunk.HasField("header"):
        raise SnapshotBroken("a new transfer header arrived in the middle of a transfer")
    await sink.write(chunk.offset, chunk.data, chunk.crc32c)
    return chunk.last
