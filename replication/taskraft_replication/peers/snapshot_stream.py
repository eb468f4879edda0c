"""Carry the content of a snapshot from one member to another.

The sender reads beside the event loop and keeps to a rate, so that its other work goes on. A
transfer that breaks off is continued from where the receiver is, a few times, if it got further.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
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
"""Rate at which one snapshot is sent: half a gigabit, so that other traffic has room."""

ATTEMPT_SECONDS_MAX: Final = 600
"""Bound of one attempt; the next one goes on from where it ended."""

STALL_SECONDS_MAX: Final = 30
"""How long a peer may take no piece; the attempt is over then."""

ATTEMPTS_MAX: Final = 20
"""Attempts in a row that bring nothing, half a minute or more; then the core begins anew."""

PAUSE_SECONDS: Final = 0.1
"""Pause before another attempt, times the number of attempts in a row that brought nothing."""

_PASSING: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DATA_LOSS,
        # grpc.aio says so of a piece that is written just when the peer has ended the call.
        grpc.StatusCode.INTERNAL,
    }
)
"""What may be better with the next attempt."""

_log = logging.getLogger(__name__)


def header_of(message: Message, meta: SnapshotMeta, own: Membership) -> pb.SnapshotHeader:
    """Return the first words of a transfer."""
    return pb.SnapshotHeader(
        hello=hello_to(message.to, own),
        term=message.term,
        index=meta.index,
        index_term=meta.term,
        conf_state=encode_conf_state(meta.conf_state),
        transfer_id=uuid.uuid4().hex,
    )


def announced_by(header: pb.SnapshotHeader) -> Message:
    """Return the message to the core that a transfer stands for.

    Raises:
        MessageMalformed: no member can have sent this.
    """
    return Message(
        MessageKind.SNAPSHOT,
        to=MemberId(header.hello.receiver),
        sender=MemberId(header.hello.sender),
        term=Term(header.term),
        snapshot=Snapshot(decode_snapshot_meta(header)),
    )


class Transfer:
    """One snapshot on its way to one member, through any number of attempts."""

    def __init__(
        self,
        channel: aio.Channel,
        header: pb.SnapshotHeader,
        content: SnapshotReader,
        rate: int = RATE_BYTES_PER_SECOND,
    ) -> None:
        self._channel = channel
        self._header = header
        self._content = content
        self._rate = rate
        self._crcs = {0: 0}
        """Checksum of the content up to each offset that was reached."""
        self._reached = 0

    async def run(self) -> None:
        """Send the snapshot.

        Raises:
            grpc.aio.AioRpcError, SnapshotBroken, TimeoutError: the peer did not take it.
        """
        fruitless = 0
        while True:
            before = self._reached
            try:
                await self._attempt()
            except (aio.AioRpcError, asyncio.InvalidStateError, TimeoutError) as error:
                fruitless = 0 if self._reached > before else fruitless + 1
                if fruitless >= ATTEMPTS_MAX or not _may_pass(error):
                    raise
                _log.info("snapshot broke off at %d, goes on: %s", self._reached, error)
                await asyncio.sleep(PAUSE_SECONDS * fruitless)
            else:
                return

    async def _attempt(self) -> None:
        """Send what the peer does not have yet, and wait until it has taken the state."""
        call = PeerServiceStub(self._channel).SendSnapshot(timeout=ATTEMPT_SECONDS_MAX)
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
        """Yield the pieces from ``offset`` at the agreed rate; the last one is empty."""
        loop = asyncio.get_running_loop()
        crc = self._crcs[offset]
        begun, begun_at = loop.time(), offset
        while data := await asyncio.to_thread(self._content.read, offset, CHUNK_BYTES):
            crc = google_crc32c.extend(crc, data)
            yield pb.SendSnapshotRequest(offset=offset, data=data, crc32c=crc)
            offset += len(data)
            self._crcs[offset] = crc
            due = begun + (offset - begun_at) / self._rate
            await asyncio.sleep(max(0.0, due - loop.time()))
        yield pb.SendSnapshotRequest(offset=offset, crc32c=crc, last=True)


def _may_pass(error: Exception) -> bool:
    return not isinstance(error, aio.AioRpcError) or error.code() in _PASSING


async def take_chunk(sink: SnapshotSink, chunk: pb.SendSnapshotRequest) -> bool:
    """Give a piece to ``sink``; return whether it was the last.

    Raises:
        SnapshotBroken: it does not fit.
    """
    if chunk.HasField("header"):
        raise SnapshotBroken("a second transfer begins in the middle of one")
    await sink.write(chunk.offset, chunk.data, chunk.crc32c)
    return chunk.last
