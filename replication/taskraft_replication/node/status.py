"""Report the state of a member, for operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.status import Status
from taskraft_replication.core.types import ConfState, LogIndex, MemberId, RaftRole, Term, value
from taskraft_replication.driver.driver import RaftDriver
from taskraft_replication.machine import StateMachine


@value
class PeerStatus:
    """The leader's view of a member, itself included."""

    match: LogIndex
    """Last index at which the member's log is known to match the leader's log."""
    next: LogIndex
    lag_entries: int
    """Number of entries of the leader's log that the member has not acknowledged."""
    state: ProgressState
    is_active: bool
    """Whether the member answered since the last or the previous quorum check."""
    is_learner: bool
    answers: int = 0
    """Number of answers of the member in this leadership."""


@value
class NodeStatus:
    """State of a member at one moment; ``peers`` is empty unless the member leads."""

    member_id: MemberId
    group_id: int
    role: RaftRole
    term: Term
    leader: MemberId
    commit: LogIndex
    applied: LogIndex
    first: LogIndex
    """First entry that is still in the log."""
    last: LogIndex
    """Last entry of the log, durable or not."""
    synced: LogIndex
    """Last entry that is durable on this member."""
    durable: LogIndex
    """Last entry whose effects are durable in the state machine, without the log."""
    conf_state: ConfState
    """The configuration in use. The roster may lag behind the configuration until its entry is
    applied."""
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
    """Return the leader's view of all members."""
    return {
        member: PeerStatus(
            match=progress.match,
            next=progress.next,
            lag_entries=status.last - progress.match,
            state=progress.state,
            is_active=progress.is_active,
            is_learner=progress.is_learner,
            answers=progress.answers,
        )
        for member, progress in status.progress.items()
    }
