"""Show a member of a group to operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.status import ProgressStatus, Status
from taskraft_replication.core.types import ConfState, LogIndex, MemberId, RaftRole, Term, value
from taskraft_replication.driver.driver import RaftDriver
from taskraft_replication.machine import StateMachine


@value
class PeerStatus:
    """What the leader knows of another member, or of itself."""

    match: LogIndex
    """Its log agrees with the leader's up to here."""
    next: LogIndex
    lag_entries: int
    """Entries of the leader's log that it has not acknowledged."""
    state: ProgressState
    is_active: bool
    """It has answered lately."""
    is_learner: bool


@value
class NodeStatus:
    """A member at one moment; ``peers`` is empty unless it leads."""

    member_id: MemberId
    group_id: int
    role: RaftRole
    term: Term
    leader: MemberId
    commit: LogIndex
    applied: LogIndex
    first: LogIndex
    """The first entry that the log still has."""
    last: LogIndex
    """The last entry, synced or not."""
    synced: LogIndex
    """The last entry that is on this member's disk."""
    durable: LogIndex
    """The last entry whose effects survive without the log."""
    conf_state: ConfState
    """The members; of a configuration whose entry is not applied yet the roster is missing."""
    peers: Mapping[MemberId, PeerStatus]


def status_of(group_id: int, driver: RaftDriver, machine: StateMachine) -> NodeStatus:
    """Return a copy of the state of a member."""
    status = driver.core.status()
    view = driver.storage.view
    return NodeStatus(
        member_id=status.member_id,
        group_id=group_id,
        role=status.soft_state.role,
        term=status.hard_state.term,
        leader=status.soft_state.leader,
        commit=status.hard_state.commit,
        applied=machine.applied_index,
        first=view.first_index(),
        last=status.last,
        synced=view.last_index(),
        durable=machine.durable_index,
        conf_state=replace(status.configuration, roster=driver.membership.roster),
        peers=peers_of(status),
    )


def peers_of(status: Status) -> Mapping[MemberId, PeerStatus]:
    """Return what the leader's core knows of the members."""
    return {
        member: PeerStatus(
            match=progress.match,
            next=progress.next,
            lag_entries=status.last - progress.match,
            state=progress.state,
            is_active=_answers(progress),
            is_learner=progress.is_learner,
        )
        for member, progress in status.progress.items()
    }


def _answers(progress: ProgressStatus) -> bool:
    """Tell whether a member answers; right after a check of the quorum none has done so since."""
    return progress.recent_active or progress.was_active


def successor_of(status: Status) -> MemberId | None:
    """Return the voter that is best suited to take the leadership over, None if there is none.

    The one whose log is longest among those that answer: it is ready soonest.
    """
    voters = set(status.configuration.voters) - {status.member_id}
    candidates = [
        (progress.match, member)
        for member, progress in status.progress.items()
        if member in voters and _answers(progress)
    ]
    return max(candidates)[1] if candidates else None
