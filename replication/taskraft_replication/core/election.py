"""Run elections: campaign, request votes, grant votes, count votes."""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final

from taskraft_replication.core.follower import forget_leader
from taskraft_replication.core.leader import become_leader
from taskraft_replication.core.member import Member
from taskraft_replication.core.quorum import VoteResult
from taskraft_replication.core.roles import become_candidate, become_follower, become_pre_candidate
from taskraft_replication.core.types import (
    NO_MEMBER,
    Message,
    MessageKind,
    RaftRole,
    Term,
)

TRANSFER_CONTEXT: Final = b"transfer"
"""Marks a vote request of a leadership transfer; voters grant it although they know a leader."""


_COMMITTED: Final = Struct(">QQ")  # term, index


class Campaign(Enum):
    """The kind of a campaign."""

    PRE_VOTE = "pre_vote"
    """Ask first whether the election could be won."""
    ELECTION = "election"
    """Start a new term."""
    TRANSFER = "transfer"
    """Start a new term at the leader's request."""


def tick(member: Member, *, may_campaign: bool) -> None:
    """Advance the clock of a member that is not the leader by one tick.

    A member that may not campaign forgets a leader that is silent for an election timeout.
    Otherwise it would refuse to vote for other members, as if the leader were alive.
    """
    if not may_campaign and member.leader == NO_MEMBER:
        return
    member.election_elapsed += 1
    if member.election_elapsed < member.election_timeout_ticks:
        return
    if not may_campaign:
        member.election_elapsed = 0
        forget_leader(member)
    elif member.is_promotable:
        member.election_elapsed = 0
        start(member)


def start(member: Member) -> None:
    """Campaign after an election timeout, or at the driver's request."""
    campaign(member, Campaign.PRE_VOTE if member.config.pre_vote else Campaign.ELECTION)


def campaign(member: Member, how: Campaign) -> None:
    """Request votes, if this member may become leader.

    A member with a committed but unapplied membership change must not campaign. It would count
    votes in a configuration that other members have already left, and two members could win
    (etcd-io/etcd#7625).
    """
    if member.role is RaftRole.LEADER or not member.is_promotable:
        return
    if member.log.has_unapplied_change:
        return
    if how is Campaign.PRE_VOTE:
        become_pre_candidate(member)
        # A pre-vote asks about the next term, which does not start yet.
        _ask(member, MessageKind.PRE_VOTE, Term(member.term + 1), b"")
        return
    become_candidate(member)
    _ask(
        member,
        MessageKind.VOTE,
        member.term,
        TRANSFER_CONTEXT if how is Campaign.TRANSFER else b"",
    )


def _ask(member: Member, kind: MessageKind, term: Term, context: bytes) -> None:
    own_id = member.config.member_id
    for voter in member.tracker.voters:
        if voter == own_id:
            # The own vote also counts only once it is durable.
            member.send_after_append(Message(_REPLY_TO[kind], own_id, own_id, term))
            continue
        member.send(
            Message(
                kind,
                voter,
                own_id,
                term,
                log_term=member.log.last_term,
                index=member.log.last_index,
                context=context,
            )
        )


def on_vote_request(member: Member, request: Message) -> None:
    """Answer VOTE or PRE_VOTE, whose term is not below this member's.

    A learner answers too, because a change that it has not received may have made it a voter
    (etcd-io/etcd#10998). A granted vote is sent only once it is durable.
    """
    future = request.term > member.term  # must be a pre-vote: a vote would have raised the term
    free = member.vote == NO_MEMBER and member.leader == NO_MEMBER
    may = future or free or member.vote == request.sender
    granted = may and member.log.is_up_to_date(request.log_term, request.index)
    # A granted pre-vote carries the future term, and a refused pre-vote carries the current term.
    member.send_after_append(
        Message(
            _REPLY_TO[request.kind],
            request.sender,
            member.config.member_id,
            request.term if granted else member.term,
            reject=not granted,
            context=b"" if granted else _committed(member),
        )
    )
    if granted and request.kind is MessageKind.VOTE:
        assert member.vote in (NO_MEMBER, request.sender), "one vote per term"
        member.election_elapsed = 0
        member.vote = request.sender


def on_vote_reply(member: Member, reply: Message) -> None:
    """Count a vote: win, lose, or continue to wait."""
    if reply.reject and _learn_commit(member, reply) and member.log.has_unapplied_change:
        become_follower(member, member.term)  # the configuration may have changed
        return
    result = member.tracker.record_vote(reply.sender, granted=not reply.reject)
    if result is VoteResult.LOST:
        become_follower(member, member.term)
    elif result is VoteResult.WON:
        if member.role is RaftRole.PRE_CANDIDATE:
            campaign(member, Campaign.ELECTION)
        elif member.config.member_id in member.tracker.votes:
            assert reply.term == member.term, "a vote for another term does not count"
            assert not member.log.has_unapplied_change, (
                "other members may use another configuration"
            )
            become_leader(member)
        # Otherwise this candidate's own vote is not durable yet. If it led now and then crashed, it
        # could forget the vote, win the same term again, and append different entries with the same
        # term and index.


def on_timeout_now(member: Member, _order: Message) -> None:
    """Campaign at once, without a pre-vote, because the leader transfers its leadership.

    If a committed membership change is not applied yet, the campaign waits until it is. The change
    may make this member a voter. Dropping the request instead would make the transfer time out, and
    the leader would drop proposals until then.
    """
    member.is_asked_to_campaign = member.log.has_unapplied_change
    if not member.is_asked_to_campaign:
        campaign(member, Campaign.TRANSFER)


def campaign_if_asked(member: Member) -> None:
    """Campaign for a leadership transfer, unless a membership change is still unapplied.

    The leader must have asked for the campaign: see ``is_asked_to_campaign``.
    """
    assert member.is_asked_to_campaign
    if not member.log.has_unapplied_change:
        member.is_asked_to_campaign = False
        campaign(member, Campaign.TRANSFER)


def _committed(member: Member) -> bytes:
    """Return the term and index of the last committed entry, to attach to a refused vote.

    A leader that is removed by a membership change may be the only member that announced the commit
    of that change. The member that must win the next election may store the change without knowing
    that it is committed. It would then ask voters of the old configuration, and their longer logs
    would make them refuse forever. (raft-rs does the same.)
    """
    index = member.log.commit_index
    term = member.log.term(index)
    assert term is not None, "the term at the commit index is always known"
    return _COMMITTED.pack(term, index)


def _learn_commit(member: Member, refusal: Message) -> bool:
    """Commit up to the entry that a refused vote names; return whether the commit index advanced.

    A committed entry stays committed in every later term. If this log has the same entry, both logs
    are equal up to it.
    """
    if not refusal.context:
        return False
    term, index = _COMMITTED.unpack(refusal.context)
    return member.log.matches(index, term) and member.log.commit_to(index)


_REPLY_TO: Final = {
    MessageKind.VOTE: MessageKind.VOTE_REPLY,
    MessageKind.PRE_VOTE: MessageKind.PRE_VOTE_REPLY,
}
