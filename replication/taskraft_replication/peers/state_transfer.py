"""Transfer the applied state to a member that has lost its own state.

The applied state contains committed entries only, so any member can send it, without a leader and
without a quorum. The receiver takes part in nothing until it has a state.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from taskraft_replication.core.types import MemberId, MemberInfo, SnapshotMeta
from taskraft_replication.errors import SnapshotBroken
from taskraft_replication.membership.codec import encode_conf_state
from taskraft_replication.peers.codec import decode_snapshot_meta
from taskraft_replication.peers.contract import Membership
from taskraft_replication.peers.grpc_peers import GrpcPeers, channel_to
from taskraft_replication.peers.handshake import hello_to
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.peers.snapshot_stream import STALL_SECONDS_MAX, pieces_of
from taskraft_replication.storage.snapshot_inbox import IncomingSnapshot, SnapshotInbox
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from taskraft_replication.stubs.raft.v1.raft_pb2_grpc import PeerServiceStub


@dataclass(slots=True, frozen=True)
class FetchedState:
    """A state that has arrived completely, durably stored under ``name`` in the inbox."""

    meta: SnapshotMeta
    name: str


async def offer_state(member: MemberId, peers: GrpcPeers) -> AsyncIterator[pb.FetchStateResponse]:
    """Yield the parts of this member's state.

    Raises:
        SnapshotBroken: the state cannot be opened or read now.
    """
    meta, content = await peers.receiver.open_state(member)
    header = pb.SnapshotHeader(
        term=meta.term,
        index=meta.index,
        index_term=meta.term,
        conf_state=encode_conf_state(meta.conf_state),
        transfer_id=uuid.uuid4().hex,
    )
    try:
        yield pb.FetchStateResponse(part=pb.SendSnapshotRequest(header=header))
        async for piece in pieces_of(content):
            yield pb.FetchStateResponse(part=piece)
    finally:
        await asyncio.to_thread(content.close)


async def fetch_state(
    peer: MemberInfo,
    own: Membership,
    security: PeerSecurity | None,
    inbox: SnapshotInbox,
    refusal_of: Callable[[SnapshotMeta], str | None],
) -> FetchedState:
    """Fetch the state of ``peer`` into the inbox.

    ``refusal_of`` returns why a state cannot be used, or None; it is asked before the content
    arrives.

    Raises:
        SnapshotBroken: the state is unusable, or damaged in transit.
        grpc.aio.AioRpcError: the peer refused or did not answer.
        MessageMalformed: the header is invalid.
        TimeoutError: the peer sends nothing.
        OSError: the disk is full or broken.
    """
    async with channel_to(peer.peer_address, peer.name, security) as channel:
        request = pb.FetchStateRequest(hello=hello_to(peer.member, own))
        parts = aiter(PeerServiceStub(channel).FetchState(request))
        header = (await _next_of(parts)).header
        meta = decode_snapshot_meta(header)
        refused = refusal_of(meta)
        if refused is not None:
            raise SnapshotBroken(refused)
        incoming = inbox.begin(header.transfer_id)
        try:
            await _receive(parts, incoming)
            await asyncio.to_thread(incoming.seal)
        except BaseException:
            inbox.give_up(incoming)
            raise
        return FetchedState(meta, incoming.name)


async def _receive(parts: AsyncIterator[pb.FetchStateResponse], incoming: IncomingSnapshot) -> None:
    turn = incoming.attach()
    while not (piece := await _next_of(parts)).last:
        await asyncio.to_thread(incoming.write, turn, piece.offset, piece.data, piece.crc32c)
    await asyncio.to_thread(incoming.write, turn, piece.offset, b"", piece.crc32c)
    incoming.complete(turn)


async def _next_of(parts: AsyncIterator[pb.FetchStateResponse]) -> pb.SendSnapshotRequest:
    async with asyncio.timeout(STALL_SECONDS_MAX):
        answer = await anext(parts, None)
    if answer is None:
        raise SnapshotBroken("the peer ended the transfer before the end of the state")
    return answer.part
