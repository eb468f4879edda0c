"""Switch a member to the configuration that an applied change leads to."""

from __future__ import annotations

from replication.core import membership
from replication.core.confchange import ConfChange
from replication.core.leader import advance_commit
from replication.core.member import Member
from replication.core.roles import become_follower
from replication.core.sender import broadcast_append, send_append
from replication.core.types import NO_MEMBER, RaftRole


def apply_change(member: Member, wanted: ConfChange) -> None:
    """Act by the configuration after ``wanted``, an entry that is being applied.

    Raises:
        ConfChangeInvalid: it does not fit; the members of the group disagree.
    """
    member.adopt(membership.change(member.configuration, wanted))
    if member.role is not RaftRole.LEADER:
        return
    own = member.members.progress.get(member.config.member_id)
    if own is None or own.is_learner:
        if member.config.step_down_on_removal:
            become_follower(member, member.term, NO_MEMBER)
        return
    if advance_commit(member):
        # With fewer members, or others, more may be committed.
        broadcast_append(member)
    else:
        # Members that were added should not have to wait for a heartbeat.
        for to, progress in member.members.others:
            send_append(member, to, progress, if_empty=False)
    if member.transferee not in member.members.voters:
        member.transferee = NO_MEMBER
