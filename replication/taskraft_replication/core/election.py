"""Elect: campaign, ask for votes, give them, count them."""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final

from taskraft_replication.core import confchange
from taskraft_replication.core.leader import become_leader
from taskraft_replication.core.member import Member
from taskraft_replication.core.quorum import VoteResult
from taskraft_replication.core.roles import become_candidate, become_follower, become_pre_candidate
from taskraft_replication.core.types import (
    NO_MEMBER,
    LogIndex,
    Message,
    MessageKind,
    RaftRole,
    Term,
)

TRANSFER_CONTEXT: Final = b"transfer"
"""Marks a vote request that the old leader has asked for; leases do not stand in its way."""


_COMMITTED: Final = Struct(">QQ")  # term, index


class Campaign(Enum):
    """Why and how a member campaigns."""

    PRE_VOTE = "pre_vote"
    """Ask first whether it could be won."""
    ELECTION = "election"
    """Begin a term."""
    TRANSFER = "transfer"
    """Begin a term because the leader says so."""


def tick(member: Member) -> None:
    """Let one tick pass on a member that does not lead."""
    member.election_elapsed += 1
    if member.election_elapsed >= member.election_timeout_ticks and member.is_promotable:
        member.election_elapsed = 0
        start(member)


def start(member: Member) -> None:
    """Campaign because no leader was heard of, or because the driver says so."""
    campaign(member, Campaign.PRE_VOTE if member.config.pre_vote else Campaign.ELECTION)


def campaign(member: Member, how: Campaign) -> None:
    """Ask for votes, if the member may lead.

    Nobody campaigns with a committed but unapplied membership change: it would count votes by a
    configuration that others have left already, and two of them could win (etcd-io/etcd#7625).
    """
    if member.role is RaftRole.LEADER or not member.is_promotable:
        return
    if _has_unapplied_change(member):
        return
    if how is Campaign.PRE_VOTE:
        become_pre_candidate(member)
        # Asked for the term that would begin, which does not begin yet.
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
            # The own vote counts like any other: once it is synced.
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

    A learner answers too: it may have been made a voter by a change that it has not seen
    (etcd-io/etcd#10998). A granted vote is synced before it leaves.
    """
    future = request.term > member.term  # then it is a pre-vote: a vote would have raised the term
    free = member.vote == NO_MEMBER and member.leader == NO_MEMBER
    may = future or free or member.vote == request.sender
    granted = may and member.log.is_up_to_date(request.log_term, request.index)
    # A granted pre-vote carries the future term, a refusal the present one.
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
    """Count an answer; win, lose, or go on waiting."""
    if reply.reject and _learn_commit(member, reply) and _has_unapplied_change(member):
        become_follower(member, member.term)  # its quorum may be another one by now
        return
    result = member.tracker.record_vote(reply.sender, granted=not reply.reject)
    if result is VoteResult.LOST:
        become_follower(member, member.term)
    elif result is VoteResult.WON:
        if member.role is RaftRole.PRE_CANDIDATE:
            campaign(member, Campaign.ELECTION)
        elif member.config.member_id in member.tracker.votes:
            assert reply.term == member.term, "a vote for another term does not count"
            assert not _has_unapplied_change(member), "others may count by another configuration"
            become_leader(member)
        # Else the own vote is not synced yet. Leading now would let a member that crashes and
        # forgets this term win it once more, and write other entries under the same number.


def on_timeout_now(member: Member, _order: Message) -> None:
    """Campaign at once; the leader hands over, so there is no need to ask first.

    Right after a membership change, the order comes while the change is still being applied here;
    it may even be the one that makes this member a voter. The order stands until it is: else the
    hand-over would come to nothing, and the leader take no proposals until it gives up.
    """
    member.is_asked_to_campaign = _has_unapplied_change(member)
    if not member.is_asked_to_campaign:
        campaign(member, Campaign.TRANSFER)


def campaign_if_asked(member: Member) -> None:
    """Carry out the order to take over, when what stood in its way is applied."""
    if member.is_asked_to_campaign and not _has_unapplied_change(member):
        member.is_asked_to_campaign = False
        campaign(member, Campaign.TRANSFER)


def _committed(member: Member) -> bytes:
    """Return what goes with a refusal: which entry is known to be committed.

    A leader that leaves with a configuration may be the last who tells of it. Who must lead next
    may have that entry, not know that it is committed, and ask voters of the old configuration,
    whose longer logs make them refuse for ever. (raft-rs does the same.)
    """
    index = member.log.commit_index
    term = member.log.term(index)
    assert term is not None, "the term at the commit index is always known"
    return _COMMITTED.pack(term, index)


def _learn_commit(member: Member, refusal: Message) -> bool:
    """Take in what a refusal says is committed; tell whether that is news.

    That an entry is committed stays true in every term. With the same entry the log up to there is
    the same.
    """
    if not refusal.context:
        return False
    term, index = _COMMITTED.unpack(refusal.context)
    return member.log.matches(index, term) and member.log.commit_to(index)


def _has_unapplied_change(member: Member) -> bool:
    """Tell whether a membership change is committed and not applied, as far as is known here.

    A snapshot that is still to be installed stands for changes that nobody can look up.
    """
    log = member.log
    if log.unstable.snapshot is not None:
        return True
    lo = LogIndex(log.applied_index + 1)
    end = LogIndex(log.commit_index + 1)
    while lo < end:
        page = log.entries(lo, end, member.config.committed_bytes_max)
        if any(confchange.of_entry(entry) is not None for entry in page):
            return True
        lo = LogIndex(page[-1].index + 1)
    return False


_REPLY_TO: Final = {
    MessageKind.VOTE: MessageKind.VOTE_REPLY,
    MessageKind.PRE_VOTE: MessageKind.PRE_VOTE_REPLY,
}
