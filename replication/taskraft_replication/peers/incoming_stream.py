"""Deliver the frames of one peer to their Raft group."""

from __future__ import annotations

from collections.abc import Mapping

from taskraft_replication.core.types import MemberId, Term
from taskraft_replication.errors import MessageMalformed, PeerRefused
from taskraft_replication.peers.codec import decode_frame
from taskraft_replication.peers.contract import Receiver
from taskraft_replication.peers.grpc_peers import GrpcPeers
from taskraft_replication.peers.handshake import check_directory
from taskraft_replication.peers.incarnations import PeerIncarnations
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb


class IncomingStream:
    """The stream from one peer; implements ``FrameListener``.

    Args:
        hello: the introduction of the peer.
        groups: the groups of this process, by their ids.
        incarnations: the newest incarnation of each peer.
    """

    def __init__(
        self, hello: pb.Hello, groups: Mapping[int, GrpcPeers], incarnations: PeerIncarnations
    ) -> None:
        self._hello = hello
        self._groups = groups
        self._incarnations = incarnations

    def frame_arrived(self, frame: bytes) -> None:
        """Decode a frame, and pass its beacon and its messages to the receiver.

        Raises:
            PeerRefused: the peer was removed, or its later incarnation has connected.
            MessageMalformed: the frame is malformed, or belongs to another stream.
        """
        hello = self._hello
        receiver = self._receiver()
        messages, beacon = decode_frame(frame)
        for message in messages:
            if message.sender != hello.sender or message.to != hello.receiver:
                raise MessageMalformed(
                    f"a message from {message.sender} to {message.to} is on the wrong stream"
                )
        if beacon is not None:
            receiver.receive_beacon(MemberId(hello.sender), beacon)
        receiver.receive(messages)

    def bytes_arrived(self, term: Term) -> None:
        """Report that a part of a frame arrived from a leader; may raise PeerRefused."""
        self._receiver().leader_alive(MemberId(self._hello.sender), term)

    def alive_arrived(self, term: Term) -> None:
        """Report that an activity report arrived from a follower; may raise PeerRefused."""
        self._receiver().follower_alive(MemberId(self._hello.sender), term)

    def _receiver(self) -> Receiver:
        """Return the receiving member, if the peer may still send to it."""
        hello = self._hello
        if not self._incarnations.is_current(hello):
            raise PeerRefused(f"member {hello.sender} has restarted and connected again")
        peers = self._groups[hello.group_id]
        # The member may have been removed since the handshake.
        check_directory(MemberId(hello.sender), hello.directory_id, peers.roster)
        return peers.receiver
