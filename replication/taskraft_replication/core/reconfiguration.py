"""Switch a member to the configuration that an applied change leads to."""

from __future__ import annotations

from taskraft_replication.core import membership
from taskraft_replication.core.confchange import ConfChange
from taskraft_replication.core.leader import advance_commit
from taskraft_replication.core.member import Member
from taskraft_replication.core.read_index import release_confirmed
from taskraft_replication.core.roles import become_follower
from taskraft_replication.core.sender import broadcast_append, send_append
from taskraft_replication.core.types import NO_MEMBER, ConfState, RaftRole


def apply_change(member: Member, wanted: ConfChange) -> ConfState:
    """Act by the configuration after ``wanted``, an entry that is being applied; return it.

    If a snapshot came after the entry was handed out, the snapshot's configuration stays in force
    and the returned one is only that of the state below it.

    Raises:
        ConfChangeInvalid: it does not fit; the members of the group disagree.
    """
    if member.superseded is not None:
        member.superseded = membership.change(member.superseded, wanted)
        return member.superseded
    configuration = membership.change(member.configuration, wanted)
    member.adopt(configuration)
    if member.role is RaftRole.LEADER:
        _lead_on(member)
    return configuration


def _lead_on(member: Member) -> None:
    """Do what the new configuration asks of its leader, or stop leading."""
    if member.config.member_id not in member.tracker.voters:
        if member.config.step_down_on_removal:
            become_follower(member, member.term)
        return
    # With fewer members, or others, more may be committed, and reads confirmed.
    release_confirmed(member)
    if advance_commit(member):
        broadcast_append(member)
    else:
        # Members that were added should not have to wait for a heartbeat.
        for to, progress in member.tracker.others:
            send_append(member, to, progress, if_empty=False)
    if member.transferee not in member.tracker.voters:
        member.transferee = NO_MEMBER
