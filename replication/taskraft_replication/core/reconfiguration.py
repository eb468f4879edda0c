"""Switch a member to the configuration of an applied membership change."""

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
    """Switch to the configuration after ``wanted``, whose entry is being applied; return it.

    If the member has received a snapshot since the entry was handed out, it keeps the snapshot's
    configuration. The returned configuration then belongs to the state below the snapshot.

    Raises:
        ConfChangeInvalid: the change does not fit; the members disagree about the configuration.
    """
    if member.superseded is not None:
        member.superseded = membership.change(member.superseded, wanted)
        return member.superseded
    configuration = membership.change(member.configuration, wanted)
    member.adopt(configuration)
    if member.role is RaftRole.LEADER:
        _continue_as_leader(member)
    return configuration


def _continue_as_leader(member: Member) -> None:
    """Adapt to the new configuration as leader, or stop leading."""
    if member.config.member_id not in member.tracker.voters:
        if member.config.step_down_on_removal:
            become_follower(member, member.term)
        return
    # In the new configuration, more entries may be committed and more reads confirmed.
    release_confirmed(member)
    if advance_commit(member):
        broadcast_append(member)
    else:
        # Send entries to new members now instead of with the next heartbeat.
        for to, progress in member.tracker.others:
            send_append(member, to, progress, if_empty=False)
    if member.transferee not in member.tracker.voters:
        member.transferee = NO_MEMBER
