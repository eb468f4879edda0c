"""Carry the messages of all groups of a process over gRPC.

One stream per direction, peer and group, in order. A stream begins with a handshake; what comes
from another cluster, another protocol version or an earlier life of a peer is refused with the
reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Final, TypeVar

import grpc
from grpc import aio

from replication.codec import MessageMalformed, decode_message
from replication.core.types import MemberId, Message, Roster, SnapshotMeta
from replication.errors import DirectoryRefused, GroupAbsent, PeerRefused, SnapshotBroken
from replication.handshake import EXPELLED_KEY, Expulsion, Lives, PeerExpelled, check_directory
from replication.machine import SnapshotReader
from replication.outbox import FRAME_BYTES_MAX
from replication.peer_link import PeerLink
from replication.peer_security import PeerSecurity, check_node
from replication.peers import Membership, Receiver
from replication.roster import find, was_removed
from replication.snapshot_stream import Transfer, announced_by, header_of, take_chunk
from replication.storage.record import ENTRY_BYTES_MAX
from replication.vanguard import Chosen
from taskraft.raft.v1 import raft_pb2 as pb
from taskraft.raft.v1.raft_pb2_grpc import (
    PeerServiceServicer,
    add_PeerServiceServicer_to_server,
)

KEEPALIVE_MS: Final = 2000
"""A connection without an answer for this long is dead: a cut network sends no reset."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", ENTRY_BYTES_MAX + FRAME_BYTES_MAX + (1 << 20)),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.so_reuseport", 0),
)
_CHANNEL_OPTIONS: Final = (
    *_OPTIONS,
    # The pauses between attempts are the link's business.
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_STOP_SECONDS: Final = 0.2

Frame = TypeVar("Frame")
Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)


class GrpcPeers:
    """The other members of one group: a link to each; satisfies ``Peers``."""

    def __init__(
        self,
        membership: Membership,
        receiver: Receiver,
        security: PeerSecurity | None,
    ) -> None:
        self.membership = membership
        self.receiver = receiver
        self._security = security
        self.roster = Roster()
        self._chosen: Chosen = None
        self._links: dict[MemberId, PeerLink] = {}
        self._addresses: dict[MemberId, str] = {}
        self._nodes: dict[MemberId, str] = {}
        """Names of those who called before the roster has told of them."""
        self._inbound: dict[MemberId, asyncio.Task[object]] = {}
        """Who serves the stream of each peer."""
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, messages: Sequence[Message]) -> None:
        """See ``Peers``. A message to a member without an address is dropped."""
        links = self._links
        for message in messages:
            link = links.get(message.to)
            if link is not None:
                link.send(message)

    def send_snapshot(self, message: Message, meta: SnapshotMeta, content: SnapshotReader) -> None:
        """See ``Peers``."""
        self._start(self._send_snapshot(message, meta, content))

    async def _send_snapshot(
        self, message: Message, meta: SnapshotMeta, content: SnapshotReader
    ) -> None:
        ok = False
        link = self._links.get(message.to)
        try:
            if link is not None:
                _log.info("snapshot of entry %d to member %d begins", meta.index, message.to)
                header = header_of(message, meta, self.membership)
                await Transfer(link.channel, header, content).run()
                _log.info("snapshot of entry %d is taken by member %d", meta.index, message.to)
                ok = True
        except (
            aio.AioRpcError,
            aio.UsageError,
            asyncio.InvalidStateError,
            SnapshotBroken,
            OSError,  # reading it here failed, or the peer took nothing for too long
        ) as error:
            _log.warning("snapshot to member %d failed: %s", message.to, error)
        self.receiver.snapshot_sent(message.to, ok=ok)

    def set_vanguard(self, chosen: Chosen) -> None:
        """See ``Peers``."""
        self._chosen = chosen
        for member, link in self._links.items():
            link.is_patient = chosen is not None and member not in chosen

    def set_roster(self, roster: Roster) -> None:
        """See ``Peers``. Links to those who are not in it yet stay: the roster may be behind."""
        self.roster = roster
        for member in [*self._inbound]:
            if was_removed(roster, member):
                # It may have nothing to say, and would never hear of it.
                self._inbound.pop(member).cancel()
        wanted = {
            member: address
            for member, address in self._addresses.items()
            if member > roster.last_member
        }
        wanted |= {
            info.member: info.peer_address
            for info in roster.members
            if info.member != self.membership.member_id and info.peer_address
        }
        for member in [*self._links]:
            if self._addresses.get(member) != wanted.get(member):
                self._start(self._links.pop(member).close())
        self._addresses = wanted
        for member in wanted.keys() - self._links.keys():
            self._open_link(member)

    def renew(self) -> None:
        """Open all links anew, with the credentials in force; what was on its way is lost."""
        for member in [*self._links]:
            self._start(self._links.pop(member).close())
            self._open_link(member)

    def _open_link(self, member: MemberId) -> None:
        channel = self._channel(member)
        link = self._links[member] = PeerLink(member, channel, self.membership, self)
        link.is_patient = self._chosen is not None and member not in self._chosen

    def greeted(self, hello: pb.Hello, node: str) -> None:
        """Note a sign of life from a member; learn where it is if this is the first one ever.

        ``node`` is its name by its certificate, empty without one.
        """
        member = MemberId(hello.sender)
        link = self._links.get(member)
        if link is not None:
            link.nudge()
        elif hello.peer_address:
            # A leader that was elected while we were away, or we are new ourselves.
            self._addresses[member] = hello.peer_address
            self._nodes[member] = node
            self._open_link(member)

    def serve(self, member: MemberId, task: asyncio.Task[object] | None) -> None:
        """Note which task serves the stream of a peer, so that it can be ended."""
        assert task is not None
        self._inbound[member] = task

    def ended(self, member: MemberId, task: asyncio.Task[object] | None) -> None:
        """Note that a task serves a stream no more; it may have been replaced before."""
        if self._inbound.get(member) is task:
            del self._inbound[member]
            self.receiver.hung_up(member)

    def answered(self, member: MemberId, answer: pb.ExchangeResponse) -> None:
        """See ``LinkEvents``."""
        check_directory(member, answer.directory_id, self.roster)
        self.receiver.met(member, answer.directory_id)

    def unreachable(self, member: MemberId) -> None:
        """See ``LinkEvents``."""
        self.receiver.unreachable(member)

    def refused(self, error: DirectoryRefused) -> None:
        """See ``LinkEvents``."""
        self.receiver.refused(error)

    async def close(self) -> None:
        """See ``Peers``."""
        for task in self._tasks:
            task.cancel()
        closing = [link.close() for link in self._links.values()]
        self._links.clear()
        await asyncio.gather(*closing, *self._tasks, return_exceptions=True)

    def _channel(self, member: MemberId) -> aio.Channel:
        address = self._addresses[member]
        if self._security is None:
            return aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
        known = find(self.roster, member)
        node = self._nodes.get(member, "") if known is None else known.name
        return self._security.channel(address, node, _CHANNEL_OPTIONS)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class GrpcTransport(PeerServiceServicer):
    """The peer port of a process; satisfies ``Transport``.

    Args:
        security: certificates of the nodes; None: whoever reaches the port is believed.
        beside: what else is served on the port, to nodes only.
    """

    def __init__(
        self,
        security: PeerSecurity | None = None,
        beside: Sequence[grpc.GenericRpcHandler] = (),
    ) -> None:
        self._security = security
        self._beside = beside
        self._groups: dict[int, GrpcPeers] = {}
        self._lives = Lives()
        self._server: aio.Server | None = None

    async def start(self, address: str) -> int:
        """Listen; return the port, which the kernel chooses if ``address`` ends in ``:0``.

        Raises:
            OSError: the address cannot be used.
        """
        server = aio.server(options=_OPTIONS)
        add_PeerServiceServicer_to_server(self, server)
        server.add_generic_rpc_handlers(tuple(self._beside))
        try:
            if self._security is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, self._security.server_credentials())
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}") from error
        await server.start()
        self._server = server
        return port

    async def stop(self) -> None:
        """Stop listening and end all streams."""
        if self._server is not None:
            await self._server.stop(_STOP_SECONDS)
            self._server = None

    def join(self, membership: Membership, roster: Roster, receiver: Receiver) -> GrpcPeers:
        """See ``Transport``. A group may be joined again after its ``Peers`` were closed."""
        peers = GrpcPeers(membership, receiver, self._security)
        peers.set_roster(roster)
        self._groups[membership.group_id] = peers
        return peers

    def renew(self) -> None:
        """Speak to all peers with the credentials in force now."""
        for peers in self._groups.values():
            peers.renew()

    async def Exchange(
        self,
        request_iterator: AsyncIterator[pb.ExchangeRequest],
        context: aio.ServicerContext[pb.ExchangeRequest, pb.ExchangeResponse],
    ) -> AsyncIterator[pb.ExchangeResponse]:
        """Take the messages of one peer until its stream ends."""
        hello = pb.Hello()
        try:
            async for frame in request_iterator:
                if hello.sender:
                    self._take_frame(frame, hello)
                else:
                    hello = frame.hello
                    peers = self._admit(hello, self._node_of(context))
                    peers.serve(MemberId(hello.sender), asyncio.current_task())
                    own = peers.membership
                    yield pb.ExchangeResponse(
                        incarnation=own.incarnation, directory_id=own.directory_id
                    )
        except asyncio.CancelledError:
            # Also the way in which a stream ends whose sender is gone.
            if not self._is_removed(hello):
                raise
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"member {hello.sender} was removed from the group",
                ((EXPELLED_KEY, Expulsion.REMOVED.value),),
            )
        except GroupAbsent as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except PeerRefused as error:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, str(error), _metadata_of(error)
            )
        except MessageMalformed as error:
            _log.error("member %d sent nonsense: %s", hello.sender, error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            group = self._groups.get(hello.group_id)
            if hello.sender and group is not None:
                group.ended(MemberId(hello.sender), asyncio.current_task())

    async def SendSnapshot(
        self,
        request_iterator: AsyncIterator[pb.SendSnapshotRequest],
        context: aio.ServicerContext[pb.SendSnapshotRequest, pb.SendSnapshotResponse],
    ) -> AsyncIterator[pb.SendSnapshotResponse]:
        """Take one snapshot, or the rest of one."""
        try:
            async for answer in self._take_snapshot(request_iterator, self._node_of(context)):
                yield answer
        except GroupAbsent as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except PeerRefused as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except SnapshotBroken as error:
            await context.abort(grpc.StatusCode.DATA_LOSS, str(error))
        except OSError as error:
            # Nothing rests on this content yet: only the transfer is lost.
            _log.error("a snapshot cannot be received: %s", error)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except MessageMalformed as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _node_of(self, context: aio.ServicerContext[Frame, Answer]) -> str:
        """Return which node has called; empty where nodes have no certificates."""
        return "" if self._security is None else self._security.node_of(context.auth_context())

    def _admit(self, hello: pb.Hello, node: str) -> GrpcPeers:
        peers = self._groups.get(hello.group_id)
        if peers is None:
            raise GroupAbsent(f"group {hello.group_id} is not here, or not yet")
        if self._security is not None:
            check_node(node, MemberId(hello.sender), peers.roster)
        self._lives.admit(hello, peers.membership, peers.roster)
        peers.greeted(hello, node)
        return peers

    def _is_removed(self, hello: pb.Hello) -> bool:
        peers = self._groups.get(hello.group_id)
        return peers is not None and was_removed(peers.roster, MemberId(hello.sender))

    def _take_frame(self, frame: pb.ExchangeRequest, hello: pb.Hello) -> None:
        if not self._lives.is_current(hello):
            raise PeerRefused(f"a later life of member {hello.sender} speaks now")
        peers = self._groups[hello.group_id]
        # The member may have been removed since it was admitted.
        check_directory(MemberId(hello.sender), hello.directory_id, peers.roster)
        messages = [decode_message(each) for each in frame.messages]
        for message in messages:
            if message.sender != hello.sender or message.to != hello.receiver:
                raise MessageMalformed(
                    f"a message from {message.sender} to {message.to} is on the wrong stream"
                )
        peers.receiver.receive(messages)

    async def _take_snapshot(
        self, chunks: AsyncIterator[pb.SendSnapshotRequest], node: str
    ) -> AsyncIterator[pb.SendSnapshotResponse]:
        sink = None
        try:
            async for chunk in chunks:
                if sink is None:
                    receiver = self._admit(chunk.header.hello, node).receiver
                    message = announced_by(chunk.header)
                    sink = receiver.begin_snapshot(message, chunk.header.transfer_id)
                    yield pb.SendSnapshotResponse(content_bytes=sink.size)
                elif await take_chunk(sink, chunk):
                    yield pb.SendSnapshotResponse(content_bytes=await sink.finish())
                    return
        finally:
            if sink is not None:
                sink.abandon()
        raise SnapshotBroken("the stream ended before the content")


def _metadata_of(error: PeerRefused) -> tuple[tuple[str, str], ...]:
    """Return what tells a peer that it is refused for good."""
    if isinstance(error, PeerExpelled):
        return ((EXPELLED_KEY, error.expulsion.value),)
    return ()
