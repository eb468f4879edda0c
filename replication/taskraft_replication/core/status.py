"""Report the state of a member, for operators and tests."""

from __future__ import annotations

from collections.abc import Mapping

from taskraft_replication.core.member import Member
from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.types import (
    ConfState,
    HardState,
    LogIndex,
    MemberId,
    RaftRole,
    SoftState,
    value,
)


@value
class ProgressStatus:
    """Replication state of one member on the leader; see ``Progress``."""

    state: ProgressState
    match: LogIndex
    next: LogIndex
    is_learner: bool
    paused: bool
    pending_snapshot: LogIndex
    recent_active: bool
    was_active: bool
    inflight_messages: int
    inflight_bytes: int
    inflight_full: bool
    answers: int = 0

    @property
    def is_active(self) -> bool:
        """Return whether the member has answered recently.

        Directly after a quorum check, answers before the check count.
        """
        return self.recent_active or self.was_active


@value
class Status:
    """A copy of a member's state; ``progress`` is empty unless the member leads."""

    member_id: MemberId
    hard_state: HardState
    soft_state: SoftState
    applied: LogIndex
    last: LogIndex
    configuration: ConfState
    transferee: MemberId
    progress: Mapping[MemberId, ProgressStatus]


def status_of(member: Member) -> Status:
    """Return a copy of the state of ``member``."""
    leads = member.role is RaftRole.LEADER
    progress = {
        peer: ProgressStatus(
            state=each.state,
            match=each.match,
            next=each.next,
            is_learner=peer not in member.tracker.voters,
            paused=each.paused,
            pending_snapshot=each.pending_snapshot,
            recent_active=each.recent_active,
            was_active=each.was_active,
            inflight_messages=len(each.inflights),
            inflight_bytes=each.inflights.payload_bytes,
            inflight_full=each.inflights.full,
            answers=each.answers,
        )
        for peer, each in member.tracker.progress.items()
        if leads
    }
    return Status(
        member_id=member.config.member_id,
        hard_state=member.hard_state,
        soft_state=member.soft_state,
        applied=member.log.applied_index,
        last=member.log.last_index,
        configuration=member.configuration,
        transferee=member.transferee,
        progress=progress,
    )


def successor_of(status: Status) -> MemberId | None:
    """Return the best voter to transfer leadership to, or None if no other voter is active.

    The best voter is the active voter with the longest matching log, because it can take over
    soonest.
    """
    voters = set(status.configuration.voters) - {status.member_id}
    candidates = [
        (progress.match, member)
        for member, progress in status.progress.items()
        if member in voters and progress.is_active
    ]
    return max(candidates)[1] if candidates else None
