"""Compare the term of a message with the member's own term before processing the message."""

from __future__ import annotations

from typing import Final

from taskraft_replication.core.election import TRANSFER_CONTEXT
from taskraft_replication.core.member import Member
from taskraft_replication.core.roles import become_follower
from taskraft_replication.core.types import NO_MEMBER, Message, MessageKind

_ANSWERED: Final = frozenset({MessageKind.APPEND, MessageKind.HEARTBEAT})
_VOTE_REQUESTS: Final = frozenset({MessageKind.VOTE, MessageKind.PRE_VOTE})


def check_term(member: Member, message: Message) -> bool:
    """Return whether to process ``message``; a higher term is adopted first.

    Called for messages whose term differs from the member's. Messages of an earlier term have no
    effect, but some are answered, so that the sender learns the current term.
    """
    if message.term > member.term:
        return _enter_term(member, message)
    _answer_late(member, message)
    return False


def _enter_term(member: Member, message: Message) -> bool:
    kind = message.kind
    if kind in _VOTE_REQUESTS and _in_lease(member) and message.context != TRANSFER_CONTEXT:
        # This member still receives messages from a leader. The sender is probably cut off from the
        # leader, and must not disturb it with a higher term (Raft thesis, 4.2.3).
        return False
    if kind is MessageKind.PRE_VOTE:
        return True  # a pre-vote does not start the term
    if kind is MessageKind.PRE_VOTE_REPLY and not message.reject:
        return True  # granted for the term that this member asked about
    become_follower(member, message.term)  # the handler sets the leader
    return True


def _in_lease(member: Member) -> bool:
    return (
        member.config.check_quorum
        and member.leader != NO_MEMBER
        and member.election_elapsed < member.config.election_ticks
    )


def _answer_late(member: Member, message: Message) -> None:
    kind = message.kind
    own_id = member.config.member_id
    if kind is MessageKind.PRE_VOTE:
        # The sender may have a longer log but a lower term. Without an answer, neither member could
        # be elected.
        refusal = MessageKind.PRE_VOTE_REPLY
        member.send_after_append(Message(refusal, message.sender, own_id, member.term, reject=True))
    elif kind in _ANSWERED and (member.config.check_quorum or member.config.pre_vote):
        # This member campaigned earlier and has a higher term, but leases and pre-votes prevent it
        # from disturbing others. Only this answer tells the leader of the lower term, which then
        # starts a new term and regains this member as a follower.
        reply = MessageKind.APPEND_REPLY
        member.send_after_append(Message(reply, message.sender, own_id, member.term))
