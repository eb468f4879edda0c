"""Compare the term of a message with the member's own before anything else is done with it."""

from __future__ import annotations

from typing import Final

from taskraft_replication.core.election import TRANSFER_CONTEXT
from taskraft_replication.core.member import Member
from taskraft_replication.core.roles import become_follower
from taskraft_replication.core.types import NO_MEMBER, Message, MessageKind

_ANSWERED: Final = frozenset({MessageKind.APPEND, MessageKind.HEARTBEAT})
_VOTE_REQUESTS: Final = frozenset({MessageKind.VOTE, MessageKind.PRE_VOTE})


def check_term(member: Member, message: Message) -> bool:
    """Tell whether ``message`` is of the member's term, which it may have raised.

    Called for messages whose term differs. What is of an earlier term has no effect, but some of it
    is answered, so that its sender learns of the present one.
    """
    if message.term > member.term:
        return _enter_term(member, message)
    _answer_late(member, message)
    return False


def _enter_term(member: Member, message: Message) -> bool:
    kind = message.kind
    if kind in _VOTE_REQUESTS and _in_lease(member) and message.context != TRANSFER_CONTEXT:
        # There is a leader, as far as this member can tell: whoever asks is cut off from it, and
        # must not disturb it with a new term (Raft thesis, 4.2.3).
        return False
    if kind is MessageKind.PRE_VOTE:
        return True  # only asks about the term
    if kind is MessageKind.PRE_VOTE_REPLY and not message.reject:
        return True  # granted for the term that this member asked about
    become_follower(member, message.term)  # whom it follows, if this is the leader, comes next
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
        # The sender may be ahead in its log and behind in its term: without an answer neither
        # could be elected.
        refusal = MessageKind.PRE_VOTE_REPLY
        member.send_after_append(Message(refusal, message.sender, own_id, member.term, reject=True))
    elif kind in _ANSWERED and (member.config.check_quorum or member.config.pre_vote):
        # This member once campaigned and reached a higher term, but leases and pre-votes keep it
        # from disturbing others with it. Only by this answer does the leader of the lower term
        # learn of it, begin a new term, and get the member back.
        reply = MessageKind.APPEND_REPLY
        member.send_after_append(Message(reply, message.sender, own_id, member.term))
