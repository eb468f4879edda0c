"""Route a message to its handler by sender, term and role."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from taskraft_replication.core import (
    election,
    follower,
    leader,
    proposal,
    read_index,
    ready,
)
from taskraft_replication.core.errors import DropReason
from taskraft_replication.core.member import Member
from taskraft_replication.core.term_check import check_term
from taskraft_replication.core.trace import MessageDropReason
from taskraft_replication.core.types import NO_MEMBER, Message, MessageKind, RaftRole

_Handler: TypeAlias = Callable[[Member, Message], None]

_WITHOUT_TERM: Final = frozenset({MessageKind.PROPOSE, MessageKind.READ_INDEX})
_REPLIES: Final = frozenset(
    {
        MessageKind.APPEND_REPLY,
        MessageKind.HEARTBEAT_REPLY,
        MessageKind.VOTE_REPLY,
        MessageKind.PRE_VOTE_REPLY,
        MessageKind.READ_INDEX_REPLY,
    }
)
_FROM_PEERS: Final = frozenset(
    {
        *_REPLIES,
        *_WITHOUT_TERM,
        MessageKind.APPEND,
        MessageKind.HEARTBEAT,
        MessageKind.SNAPSHOT,
        MessageKind.VOTE,
        MessageKind.PRE_VOTE,
        MessageKind.TIMEOUT_NOW,
        MessageKind.TRANSFER_LEADER,
    }
)
_FROM_WORKERS: Final[Mapping[MessageKind, _Handler]] = {
    MessageKind.STORAGE_APPEND_REPLY: ready.on_storage_append_reply,
    MessageKind.STORAGE_APPLY_REPLY: ready.on_storage_apply_reply,
}


def receive(member: Member, message: Message) -> None:
    """Process a message from outside; drop it if its kind or sender is not allowed."""
    kind, sender = message.kind, message.sender
    if kind not in _FROM_PEERS:
        if kind in _FROM_WORKERS and sender < NO_MEMBER:
            _FROM_WORKERS[kind](member, message)
        else:
            member.drop(message, MessageDropReason.NOT_FROM_PEER)
    elif sender <= NO_MEMBER:
        member.drop(message, MessageDropReason.NOT_FROM_PEER)
    elif kind in _REPLIES and sender not in member.tracker.progress:
        member.drop(message, MessageDropReason.UNKNOWN_PEER)
    elif not message.term and kind not in _WITHOUT_TERM:
        member.drop(message, MessageDropReason.WITHOUT_TERM)
    else:
        _handle(member, message)


def dispatch(member: Member, message: Message) -> None:
    """Process a message that the member sends itself, or a reply of a storage worker."""
    from_worker = _FROM_WORKERS.get(message.kind)
    if from_worker is not None:
        from_worker(member, message)
    else:
        _handle(member, message)


def _handle(member: Member, message: Message) -> None:
    """Process a message of this term; ignore it if the member's role has no handler."""
    if message.term != member.term and message.term and not check_term(member, message):
        return
    handler = _HANDLERS[member.role].get(message.kind)
    if handler is not None:
        handler(member, message)


def _on_vote_request(member: Member, message: Message) -> None:
    answers = len(member.after_append)
    election.on_vote_request(member, message)
    assert len(member.after_append) == answers + 1, (
        "each vote request is answered, by a learner too"
    )


def _on_proposal(member: Member, message: Message) -> None:
    if isinstance(proposal.propose(member, message.entries, message.sender), DropReason):
        member.drop(message, MessageDropReason.PROPOSAL_DROPPED)


def _pass_transfer_on(member: Member, message: Message) -> None:
    if member.leader == NO_MEMBER:
        member.drop(message, MessageDropReason.TRANSFER_DROPPED)
        return
    kind = MessageKind.TRANSFER_LEADER
    member.send(Message(kind, member.leader, message.sender, member.term))


_ANY_ROLE: Final[Mapping[MessageKind, _Handler]] = {
    MessageKind.PROPOSE: _on_proposal,
    MessageKind.READ_INDEX: read_index.on_read_index,
    MessageKind.VOTE: _on_vote_request,
    MessageKind.PRE_VOTE: _on_vote_request,
    MessageKind.APPEND: follower.on_append,
    MessageKind.HEARTBEAT: follower.on_heartbeat,
    MessageKind.SNAPSHOT: follower.on_snapshot,
}
_HANDLERS: Final[Mapping[RaftRole, Mapping[MessageKind, _Handler]]] = {
    RaftRole.FOLLOWER: {
        **_ANY_ROLE,
        MessageKind.TIMEOUT_NOW: election.on_timeout_now,
        MessageKind.TRANSFER_LEADER: _pass_transfer_on,
        MessageKind.READ_INDEX_REPLY: read_index.on_read_index_reply,
    },
    RaftRole.PRE_CANDIDATE: {**_ANY_ROLE, MessageKind.PRE_VOTE_REPLY: election.on_vote_reply},
    RaftRole.CANDIDATE: {**_ANY_ROLE, MessageKind.VOTE_REPLY: election.on_vote_reply},
    RaftRole.LEADER: {
        **_ANY_ROLE,
        MessageKind.APPEND_REPLY: leader.on_append_reply,
        MessageKind.HEARTBEAT_REPLY: leader.on_heartbeat_reply,
        MessageKind.TRANSFER_LEADER: leader.on_transfer_leader,
    },
}
"""Handlers per role for messages of the member's term; other kinds are ignored."""
