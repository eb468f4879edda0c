"""Answer linearizable reads on the leader; forward them on other members (Raft thesis, 6.4)."""

from __future__ import annotations

from taskraft_replication.core.config import ReadOnly
from taskraft_replication.core.member import Member
from taskraft_replication.core.sender import broadcast_heartbeat
from taskraft_replication.core.trace import MessageDropReason
from taskraft_replication.core.types import (
    NO_MEMBER,
    LogIndex,
    Message,
    MessageKind,
    RaftRole,
    ReadState,
)


def on_read_index(member: Member, request: Message) -> None:
    """Handle a read request of this member or of a follower."""
    if member.role is not RaftRole.LEADER:
        _pass_on(member, request)
    elif member.reads.is_full:
        member.drop(request, MessageDropReason.READ_DROPPED)
    elif member.has_committed_in_term():
        _begin(member, request)
    else:
        # The commit index may be behind an index that an earlier leader has shown to clients. The
        # commit index is known to be current only once an entry of this term is committed (Raft
        # paper, section 8).
        member.reads.wait_for_commit(request)


def on_read_index_reply(member: Member, reply: Message) -> None:
    """Return the leader's answer to the driver of this member."""
    member.read_states.append(ReadState(reply.index, reply.context))


def release_waiting(member: Member) -> None:
    """Start the rounds of reads that arrived before this leader's first commit."""
    if member.has_committed_in_term():
        for request in member.reads.take_waiting():
            _begin(member, request)


def release_confirmed(member: Member) -> None:
    """Answer the reads that a quorum has confirmed."""
    own_id = member.config.member_id
    for index, request in member.reads.confirmed(member.configuration, own_id):
        _answer(member, request, index)


def _pass_on(member: Member, request: Message) -> None:
    if member.leader == NO_MEMBER or not member.is_self(request.sender):
        member.drop(request, MessageDropReason.READ_DROPPED)
        return
    member.send(
        Message(MessageKind.READ_INDEX, member.leader, request.sender, context=request.context)
    )


def _begin(member: Member, request: Message) -> None:
    assert member.has_committed_in_term(), "the commit index is not known to be current"
    index = member.log.commit_index
    leases = member.config.read_only is ReadOnly.LEASE_BASED
    if leases and member.transferee == NO_MEMBER:
        _answer(member, request, index)
        return
    # During a leadership transfer the lease is not valid, because the next leader does not wait for
    # its end.
    member.reads.add(request, index)
    release_confirmed(member)  # at once if this member is a quorum
    if member.reads.heartbeat_context:
        broadcast_heartbeat(member)


def _answer(member: Member, request: Message, index: LogIndex) -> None:
    if member.is_self(request.sender):
        member.read_states.append(ReadState(index, request.context))
        return
    member.send(
        Message(
            MessageKind.READ_INDEX_REPLY,
            request.sender,
            member.config.member_id,
            member.term,
            index=index,
            context=request.context,
        )
    )
