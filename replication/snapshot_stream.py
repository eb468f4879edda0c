"""Carry the content of a snapshot from one member to another."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final

import google_crc32c
from grpc import aio

from replication.codec import decode_snapshot_meta, encode_conf_state
from replication.core.types import MemberId, Message, MessageKind, Snapshot, SnapshotMeta, Term
from replication.errors import SnapshotBroken
from replication.handshake import hello_to
from replication.machine import SnapshotReader
from replication.peers import Membership, SnapshotSink
from taskraft.raft.v1 import raft_pb2 as pb
from taskraft.raft.v1.raft_pb2_grpc import PeerServiceStub

CHUNK_BYTES_MAX: Final = 1 << 20
ACCEPT_SECONDS_MAX: Final = 600
"""Bound of one transfer; a snapshot that takes longer is begun anew, with a newer state."""


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


def chunks_of(content: SnapshotReader) -> Iterator[pb.SendSnapshotRequest]:
    """Yield the pieces of a snapshot; the last one is empty and says so."""
    offset = 0
    crc = 0
    for data in content.chunks():
        assert len(data) <= CHUNK_BYTES_MAX, "the state machine promised pieces of at most 1 MiB"
        crc = google_crc32c.extend(crc, data)
        yield pb.SendSnapshotRequest(offset=offset, data=data, crc32c=crc)
        offset += len(data)
    yield pb.SendSnapshotRequest(offset=offset, crc32c=crc, last=True)


async def send_snapshot(
    channel: aio.Channel, header: pb.SnapshotHeader, content: SnapshotReader
) -> None:
    """Send a whole snapshot.

    Raises:
        grpc.aio.AioRpcError: the peer did not take it.
    """
    call = PeerServiceStub(channel).SendSnapshot(timeout=ACCEPT_SECONDS_MAX)
    try:
        await call.write(pb.SendSnapshotRequest(header=header))
        for chunk in chunks_of(content):
            await call.write(chunk)
        await call.done_writing()
        await call
    finally:
        call.cancel()


def take_chunk(sink: SnapshotSink, chunk: pb.SendSnapshotRequest) -> bool:
    """Give a piece to ``sink``; return whether it was the last.

    Raises:
        SnapshotBroken: it does not fit.
    """
    if chunk.HasField("header"):
        raise SnapshotBroken("a second transfer begins in the middle of one")
    sink.write(chunk.offset, chunk.data, chunk.crc32c)
    return chunk.last
