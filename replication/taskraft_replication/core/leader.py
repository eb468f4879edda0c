"""Handle replies as leader, advance the commit index, keep or transfer leadership."""

from __future__ import annotations

from taskraft_replication.core.member import Member
from taskraft_replication.core.progress import Progress, ProgressState
from taskraft_replication.core.proposal import append_own, leave_joint_if_due
from taskraft_replication.core.quorum import VoteResult, joint_vote
from taskraft_replication.core.read_index import release_confirmed, release_waiting
from taskraft_replication.core.roles import become_follower, take_role
from taskraft_replication.core.sender import (
    broadcast_append,
    broadcast_heartbeat,
    send_append,
    send_timeout_now,
)
from taskraft_replication.core.types import (
    NO_MEMBER,
    Entry,
    LogIndex,
    MemberId,
    Message,
    RaftRole,
    Term,
)


def become_leader(member: Member) -> None:
    """Become leader of the term; append an empty entry, which commits all earlier entries."""
    members = member.tracker
    assert joint_vote(members.configuration, members.votes) is VoteResult.WON, "not elected"
    assert member.config.member_id in members.voters, "the leader must be a voter"
    granted = [voter for voter, is_granted in members.votes.items() if is_granted]
    member.reset(member.term)
    if member.config.votes_show_activity:
        for voter in granted:
            members.progress[voter].recent_active = True
    member.leader = member.config.member_id
    own = member.tracker.progress[member.config.member_id]
    own.become_replicate()
    own.recent_active = True  # stays True, because the quorum check skips this member
    # The log may hold an unapplied change of an earlier leader.
    member.pending_change_index = member.log.last_index
    take_role(member, RaftRole.LEADER)
    append_own(member, [Entry(Term(0), LogIndex(0))])
    broadcast_append(member)


def advance_commit(member: Member) -> bool:
    """Commit the entries that a quorum has stored; return whether the commit index advanced.

    Only an entry of the leader's own term is committed by counting; earlier entries are committed
    with it (Raft paper, 5.4.2 and figure 8). A leader outside the configuration does not count
    itself.
    """
    members, log = member.tracker, member.log
    index = members.commit_index()
    if index <= log.commit_index or not log.matches(index, member.term):
        return False
    assert members.have_stored(index), "a majority of each half has stored it"
    return log.commit_to(index)


def on_append_reply(member: Member, reply: Message) -> None:
    """Record the index up to which a member's log matches this log."""
    progress = member.tracker.progress.get(reply.sender)
    if progress is None:
        return  # this leader was removed and has not stepped down
    assert reply.term == member.term, "an acknowledgement of another term does not count"
    progress.answers += 1
    progress.recent_active = True
    if reply.reject:
        _on_rejected(member, reply, progress)
        return
    index = reply.index
    assert index <= member.log.last_index, "the acknowledged entry was never sent"
    probed = progress.state is ProgressState.PROBE and index == progress.match
    if progress.acknowledge(index) or probed:
        _on_accepted(member, reply.sender, progress)


def _on_rejected(member: Member, reply: Message, progress: Progress) -> None:
    hint = reply.reject_hint
    if reply.log_term:
        # Skip the entries with terms above the follower's term at the hint: they cannot match.
        hint, _ = member.log.last_not_above(hint, reply.log_term)
    if progress.reject(reply.index, hint):
        if progress.state is ProgressState.REPLICATE:
            progress.become_probe()
        send_append(member, reply.sender, progress)


def _on_accepted(member: Member, sender: MemberId, progress: Progress) -> None:
    is_peer = sender != member.config.member_id
    if progress.state is ProgressState.REPLICATE:
        if is_peer:
            progress.inflights.free_up_to(progress.match)
    elif progress.state is ProgressState.PROBE:
        progress.become_replicate()
    elif progress.match + 1 >= member.log.first_index():
        # The follower has installed a snapshot that reaches the first entry of this log.
        progress.become_replicate()
    log = member.log
    if progress.match > log.commit_index and advance_commit(member):
        _announce_commit(member)
    elif is_peer and progress.can_bump_commit(log.commit_index):
        send_append(member, sender, progress)
    if not is_peer:
        return
    while progress.next <= log.last_index and send_append(member, sender, progress, if_empty=False):
        pass
    if sender == member.transferee and progress.match == log.last_index:
        send_timeout_now(member, sender)


def _announce_commit(member: Member) -> None:
    """Start the reads that waited for a commit of this term, and tell the followers."""
    if member.reads.waiting:
        release_waiting(member)
    if member.tracker.others:
        broadcast_append(member)


def on_heartbeat_reply(member: Member, reply: Message) -> None:
    """Mark the follower as active, resume a paused follower, and confirm reads."""
    progress = member.tracker.progress[reply.sender]
    progress.answers += 1
    progress.recent_active = True
    progress.paused_by_flow = False
    if progress.match < member.log.last_index or progress.state is ProgressState.PROBE:
        send_append(member, reply.sender, progress)
    if reply.context:
        member.reads.acknowledge(reply.sender, reply.context)
        release_confirmed(member)


def on_follower_alive(member: Member, follower: MemberId) -> None:
    """Mark ``follower`` as active, because it has received a part of a message of this leader."""
    progress = member.tracker.progress.get(follower)
    if progress is not None:
        progress.answers += 1
        progress.recent_active = True


def on_transfer_leader(member: Member, request: Message) -> None:
    """Start the transfer of leadership to the sender, which must be a voter.

    Proposals are dropped during the transfer. The leader gives up the transfer after an election
    timeout.
    """
    to = request.sender
    if to not in member.tracker.voters or to == member.transferee:
        return
    member.transferee = NO_MEMBER
    if member.is_self(to):
        return
    member.election_elapsed = 0
    member.transferee = to
    progress = member.tracker.progress[to]
    if progress.match == member.log.last_index:
        send_timeout_now(member, to)
    else:
        send_append(member, to, progress)


def on_unreachable(member: Member, peer: MemberId) -> None:
    """Stop pipelining to ``peer``, because the last messages are probably lost."""
    progress = member.tracker.progress.get(peer)
    if progress is not None and progress.state is ProgressState.REPLICATE:
        progress.become_probe()


def on_snapshot_status(member: Member, peer: MemberId, *, ok: bool) -> None:
    """Resume replication to ``peer`` after its snapshot, or probe again if the transfer failed.

    The next append waits for a message from the peer. After a success, the peer needs this time to
    install the snapshot; after a failure, the heartbeat interval is a suitable pause.
    """
    progress = member.tracker.progress.get(peer)
    if progress is None or progress.state is not ProgressState.SNAPSHOT:
        return
    if not ok:
        progress.pending_snapshot = LogIndex(0)
    progress.become_probe()
    progress.paused_by_flow = True


def tick(member: Member) -> None:
    """Advance the leader's clock by one tick."""
    member.heartbeat_elapsed += 1
    member.election_elapsed += 1
    if member.election_elapsed >= member.config.election_ticks:
        member.election_elapsed = 0
        if member.config.check_quorum:
            _check_quorum(member)
        if member.transferee != NO_MEMBER:
            member.transferee = NO_MEMBER  # the transfer took too long
            leave_joint_if_due(member)
    is_leader = member.role is RaftRole.LEADER
    if is_leader and member.heartbeat_elapsed >= member.config.heartbeat_ticks:
        member.heartbeat_elapsed = 0
        broadcast_heartbeat(member)


def _check_quorum(member: Member) -> None:
    """Step down if no quorum was active since the last check."""
    if not member.tracker.has_active_quorum():
        become_follower(member, member.term)
    for _, progress in member.tracker.others:
        progress.was_active = progress.recent_active
        progress.recent_active = False
