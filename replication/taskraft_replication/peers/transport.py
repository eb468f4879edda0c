"""Serve the incoming streams of all groups of a process.

There is one ordered stream per direction, peer and group. A stream starts with a handshake over
gRPC. The receiver refuses a sender of another cluster, of an earlier incarnation, or without a
common protocol version, and reports the reason. The messages are then sent on a frame connection:
see ``taskraft_replication.peers.frame_connection``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

import grpc
from grpc import aio

from taskraft_replication.core.errors import Compacted, EntryUnavailable
from taskraft_replication.core.types import MemberId, Roster
from taskraft_replication.errors import (
    GroupAbsent,
    MessageMalformed,
    PeerRefused,
    ReceiverAbsent,
    ReplicationError,
    SnapshotBroken,
    SnapshotBusy,
    SnapshotUnusable,
)
from taskraft_replication.membership.codec import encode_member
from taskraft_replication.membership.roster import find, is_named, was_removed
from taskraft_replication.peers.connection_tickets import ConnectionTickets
from taskraft_replication.peers.contract import Membership, Receiver
from taskraft_replication.peers.frame_connection import BEGIN_SECONDS
from taskraft_replication.peers.grpc_peers import CONNECTION_OPTIONS, FRAME_BYTES_LIMIT, GrpcPeers
from taskraft_replication.peers.handshake import (
    EXPELLED_KEY,
    Expulsion,
    PeerExpelled,
    answer_to,
    check_peer,
)
from taskraft_replication.peers.incarnations import PeerIncarnations
from taskraft_replication.peers.incoming_stream import IncomingStream
from taskraft_replication.peers.log_transfer import OfferedLog, description_of, offer_entries
from taskraft_replication.peers.peer_port import CONNECTIONS_MAX, PeerPort
from taskraft_replication.peers.pieces import FrameInvalid
from taskraft_replication.peers.reported_calls import ReportedCalls
from taskraft_replication.peers.security import PeerSecurity, check_node
from taskraft_replication.peers.snapshot_stream import announced_by, take_chunk
from taskraft_replication.peers.state_transfer import offer_state
from taskraft_replication.peers.vouching import MemberUnproven, Vouching
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from taskraft_replication.stubs.raft.v1.raft_pb2_grpc import (
    PeerServiceServicer,
    add_PeerServiceServicer_to_server,
)

_STOP_SECONDS: Final = 0.2
_IDLE_MS: Final = 300_000
"""Maximum idle time of a connection without a call."""
_METADATA_BYTES_MAX: Final = 8 << 10
CALLS_MAX: Final = 32_000
"""Default of the maximum number of concurrent calls of a peer; a follower forwards all its calls on
one connection."""
_BURST_PEERS: Final = 4
"""Number of peers that may send the maximum number of calls in one burst."""
_SERVER_OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    ("grpc.server_handshake_timeout_ms", int(1000 * BEGIN_SECONDS)),
    ("grpc.max_connection_idle_ms", _IDLE_MS),
    ("grpc.max_metadata_size", _METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", _METADATA_BYTES_MAX),
)
HALF_RECEIVED_BYTES_MAX: Final = 2 * FRAME_BYTES_LIMIT
"""Maximum total length of all unfinished frames. Only leaders send long frames, and at most the
frames of the current and the previous leader are unfinished at the same time."""
_BEHIND: Final = "127.0.0.1:0"
"""Loopback address of the gRPC server behind the peer port."""

_REPLACED: Final = (Expulsion.REMOVED, Expulsion.DIRECTORY)
"""Refusals of a member whose place was taken, or can only be taken, by a new member."""

Frame = TypeVar("Frame")
Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)


class GrpcTransport(PeerServiceServicer):
    """The peer port of a process; implements ``Transport``.

    Args:
        security: certificates of the nodes; None: callers are not authenticated.
        beside: further gRPC handlers on this port, for nodes only; coroutine functions.
        connections_max: maximum number of connections to the port.
        calls_max: maximum number of concurrent calls on a connection; further calls wait at the
            sender.
    """

    def __init__(
        self,
        security: PeerSecurity | None = None,
        beside: Sequence[grpc.GenericRpcHandler] = (),
        connections_max: int = CONNECTIONS_MAX,
        calls_max: int = CALLS_MAX,
    ) -> None:
        self._security = security
        self._beside = beside
        self._groups: dict[int, GrpcPeers] = {}
        self._offered: dict[int, OfferedLog] = {}
        self._incarnations = PeerIncarnations()
        self._tickets = ConnectionTickets(FRAME_BYTES_LIMIT, HALF_RECEIVED_BYTES_MAX)
        self._port = PeerPort(self._tickets, security, connections_max)
        self._server: aio.Server | None = None
        self._vouching = None if security is None else Vouching(security)
        self._options = (
            *_SERVER_OPTIONS,
            ("grpc.max_concurrent_streams", calls_max),
            # By default, gRPC cancels some calls of a burst once 1 000 calls wait for the event
            # loop.
            ("grpc.server.max_pending_requests", _BURST_PEERS * calls_max),
            ("grpc.server.max_pending_requests_hard_limit", _BURST_PEERS * calls_max),
        )

    async def start(self, address: str) -> int:
        """Listen; return the port.

        The kernel chooses the port if ``address`` ends in ``:0``.

        Raises:
            OSError: the address cannot be used.
        """
        server = aio.server(options=self._options)
        add_PeerServiceServicer_to_server(self, server)
        arrived = self._port.call_arrived
        server.add_generic_rpc_handlers([ReportedCalls(each, arrived) for each in self._beside])
        try:
            if self._security is None:
                port = server.add_insecure_port(_BEHIND)
            else:
                port = server.add_secure_port(_BEHIND, self._security.server_credentials())
        except RuntimeError as error:
            raise OSError(f"cannot listen on {_BEHIND}") from error
        await server.start()
        self._server = server
        return await self._port.start(address, port)

    async def stop(self) -> None:
        """Stop listening and close all streams."""
        self._port.shut()
        if self._server is not None:
            await self._server.stop(_STOP_SECONDS)
            self._server = None
        await self._port.end()

    def join(self, membership: Membership, roster: Roster, receiver: Receiver) -> GrpcPeers:
        """Start to exchange messages with the other members of a group.

        A group may be joined again after its ``Peers`` were closed.
        """
        peers = GrpcPeers(membership, receiver, self._security)
        peers.set_roster(roster)
        self._offered.pop(membership.group_id, None)
        self._groups[membership.group_id] = peers
        return peers

    def offer_log(self, offered: OfferedLog) -> None:
        """Let other members read the log of a member that repairs itself, until it joins."""
        self._offered[offered.membership.group_id] = offered

    def renew(self) -> None:
        """Reconnect to all peers with the current credentials."""
        for peers in self._groups.values():
            peers.renew()

    async def Exchange(
        self,
        request_iterator: AsyncIterator[pb.ExchangeRequest],
        context: aio.ServicerContext[pb.ExchangeRequest, pb.ExchangeResponse],
    ) -> AsyncIterator[pb.ExchangeResponse]:
        """Introduce one peer, then receive its messages on a frame connection until that ends."""
        self._port.call_arrived(context.peer())
        hello = (await anext(request_iterator, pb.ExchangeRequest())).hello
        try:
            node = self._node_of(context)
            await self._check_member(hello, node)
            peers = self._check_hello(hello, node)
            peers.serve(MemberId(hello.sender), asyncio.current_task())
            stream = IncomingStream(hello, self._groups, self._incarnations)
            with self._tickets.issue(stream, node) as ticket:
                yield answer_to(hello, peers.membership, ticket.token)
                await ticket.end
        except asyncio.CancelledError:
            # The cancellation may also mean that the sender has disconnected.
            if self._is_removed(hello):
                await context.abort(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"member {hello.sender} was removed from the group",
                    ((EXPELLED_KEY, Expulsion.REMOVED.value),),
                )
            if self._is_replaced(hello):
                # The sender may still be connected. Do not cancel: grpc.aio would treat the
                # cancellation as its own.
                await context.abort(
                    grpc.StatusCode.ABORTED, f"member {hello.sender} has opened another stream"
                )
            raise
        except (GroupAbsent, MemberUnproven) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except PeerRefused as error:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, str(error), _metadata_of(error)
            )
        except (MessageMalformed, FrameInvalid) as error:
            _log.error(
                "closing the stream from member %d, which sent an invalid message: %s",
                hello.sender,
                error,
            )
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
        """Receive a snapshot, or the rest of one."""
        self._port.call_arrived(context.peer())
        try:
            async for answer in self._take_snapshot(request_iterator, self._node_of(context)):
                yield answer
        except (GroupAbsent, MemberUnproven) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except PeerRefused as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except SnapshotUnusable as error:
            _log.error("cannot use a received snapshot: %s", error)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except SnapshotBusy as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"busy: {error}")
        except SnapshotBroken as error:
            await context.abort(grpc.StatusCode.DATA_LOSS, str(error))
        except OSError as error:
            # Only the transfer is lost, because no state depends on this content yet.
            _log.error("cannot receive a snapshot: %s", error)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except MessageMalformed as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    async def FetchState(
        self,
        request: pb.FetchStateRequest,
        context: aio.ServicerContext[pb.FetchStateRequest, pb.FetchStateResponse],
    ) -> AsyncIterator[pb.FetchStateResponse]:
        """Send the state to a member that has lost its own state."""
        self._port.call_arrived(context.peer())
        try:
            peers = self._check_identity(request.hello, self._node_of(context))
            _check_receiver(MemberId(request.hello.sender), peers.roster)
            async for part in offer_state(MemberId(request.hello.sender), peers):
                yield part
        except (GroupAbsent, MemberUnproven) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except PeerRefused as error:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, str(error), _metadata_of(error)
            )
        except (SnapshotBroken, OSError) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    async def DescribeLog(
        self,
        request: pb.DescribeLogRequest,
        context: aio.ServicerContext[pb.DescribeLogRequest, pb.DescribeLogResponse],
    ) -> pb.DescribeLogResponse:
        """Tell a member whose log is damaged which entries this member can read."""
        self._port.call_arrived(context.peer())
        try:
            return description_of(self._log_for(request.hello, self._node_of(context)))
        except ReplicationError as error:
            await context.abort(_status_of(error), str(error))

    async def FetchEntries(
        self,
        request: pb.FetchEntriesRequest,
        context: aio.ServicerContext[pb.FetchEntriesRequest, pb.FetchEntriesResponse],
    ) -> AsyncIterator[pb.FetchEntriesResponse]:
        """Send entries to a member whose log is damaged."""
        self._port.call_arrived(context.peer())
        try:
            offered = self._log_for(request.hello, self._node_of(context))
            async for piece in offer_entries(offered.log, request):
                yield piece
        except ReplicationError as error:
            await context.abort(_status_of(error), str(error))
        except (Compacted, EntryUnavailable, OSError) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the entries are gone: {error!r}")

    async def DescribeMember(
        self,
        request: pb.DescribeMemberRequest,
        context: aio.ServicerContext[pb.DescribeMemberRequest, pb.DescribeMemberResponse],
    ) -> pb.DescribeMemberResponse:
        """Return a member to another member; see ``Vouching``."""
        self._port.call_arrived(context.peer())
        try:
            node = self._node_of(context)
        except PeerRefused as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        peers = self._groups.get(request.group_id)
        infos = () if peers is None else peers.roster.members
        is_member = self._security is None or any(is_named(info, node) for info in infos)
        found = next((info for info in infos if info.member == request.member), None)
        if not is_member or found is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such member here")
        return pb.DescribeMemberResponse(member=encode_member(found))

    def _node_of(self, context: aio.ServicerContext[Frame, Answer]) -> str:
        """Return the name of the calling node; empty if nodes have no certificates."""
        return "" if self._security is None else self._security.node_of(context.auth_context())

    async def _check_member(self, hello: pb.Hello, node: str) -> None:
        """Check that a node is a member, as far as this node can know.

        Raises:
            MemberUnproven: the roster lacks the member, and no known member knows it.
        """
        peers = self._groups.get(hello.group_id)
        if self._vouching is not None and peers is not None:
            await self._vouching.check(hello.group_id, MemberId(hello.sender), node, peers)

    def _check_hello(self, hello: pb.Hello, node: str) -> GrpcPeers:
        peers = self._check_identity(hello, node)
        peers.hello_received(hello, node)
        return peers

    def _check_identity(self, hello: pb.Hello, node: str) -> GrpcPeers:
        peers = self._groups.get(hello.group_id)
        if peers is None:
            raise GroupAbsent(
                f"this process has no member of group {hello.group_id}, or has not started it yet"
            )
        if self._security is not None:
            check_node(node, MemberId(hello.sender), peers.roster)
        self._incarnations.check_hello(
            hello,
            peers.membership,
            peers.roster,
            is_connected=peers.is_connected(MemberId(hello.sender)),
        )
        return peers

    def _log_for(self, hello: pb.Hello, node: str) -> OfferedLog:
        """Return the log of this process's member for the peer that has sent a ``Hello``.

        The request does not count as a start of the peer.

        Raises:
            GroupAbsent: this process has no log of the group, or has not opened the log yet.
            PeerRefused, MemberUnproven: the peer is no member.
        """
        offered, peers = self._offered.get(hello.group_id), self._groups.get(hello.group_id)
        if peers is not None:
            receiver = peers.receiver
            offered = OfferedLog(peers.membership, peers.roster, receiver.log, receiver.leader)
        if offered is None:
            raise GroupAbsent(f"this process has not opened the log of group {hello.group_id} yet")
        if self._security is not None:
            check_node(node, MemberId(hello.sender), offered.roster)
        check_peer(hello, offered.membership, offered.roster)
        _check_receiver(MemberId(hello.sender), offered.roster)
        return offered

    def _is_removed(self, hello: pb.Hello) -> bool:
        peers = self._groups.get(hello.group_id)
        return peers is not None and was_removed(peers.roster, MemberId(hello.sender))

    def _is_replaced(self, hello: pb.Hello) -> bool:
        """Return whether another stream of the same member has replaced the stream of this task."""
        peers = self._groups.get(hello.group_id)
        member = MemberId(hello.sender)
        return peers is not None and peers.is_replaced(member, asyncio.current_task())

    async def _take_snapshot(
        self, chunks: AsyncIterator[pb.SendSnapshotRequest], node: str
    ) -> AsyncIterator[pb.SendSnapshotResponse]:
        sink = None
        try:
            async for chunk in chunks:
                if sink is None:
                    await self._check_member(chunk.header.hello, node)
                    receiver = self._check_hello(chunk.header.hello, node).receiver
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


def _check_receiver(member: MemberId, roster: Roster) -> None:
    """Check that this node knows a member to which it sends its state or entries of its log.

    Raises:
        MemberUnproven: the roster lacks the member.
    """
    if find(roster, member) is None:
        raise MemberUnproven(f"member {member} is not known here")


def _status_of(error: ReplicationError) -> grpc.StatusCode:
    """Return the status of a call for entries that failed."""
    if isinstance(error, MessageMalformed):
        return grpc.StatusCode.INVALID_ARGUMENT
    if isinstance(error, ReceiverAbsent):
        return grpc.StatusCode.NOT_FOUND
    if isinstance(error, PeerExpelled) and error.expulsion in _REPLACED:
        return grpc.StatusCode.PERMISSION_DENIED
    if isinstance(error, PeerRefused) and not isinstance(error, GroupAbsent | MemberUnproven):
        return grpc.StatusCode.FAILED_PRECONDITION
    return grpc.StatusCode.UNAVAILABLE


def _metadata_of(error: PeerRefused) -> tuple[tuple[str, str], ...]:
    """Return the metadata that reports a permanent refusal to the peer."""
    if isinstance(error, PeerExpelled):
        return ((EXPELLED_KEY, error.expulsion.value),)
    return ()
