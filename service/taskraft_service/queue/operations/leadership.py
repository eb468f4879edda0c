"""Define the leader's own commands: startup, call counts, wall offset and cluster version.

No client can send these commands. The wall offset is wall time minus cluster time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft_service.queue.entities.instants import after
from taskraft_service.queue.entities.refusal import CountResult
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.operations.command_definition import (
    CommandDefinition,
    Idempotent,
    predict_nothing,
    replicated,
)
from taskraft_service.queue.state.cluster_version import ClusterVersionState
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.values import value
from taskraft_service.versions import check_version


@value
class Startup(Idempotent):
    """Begin a leadership: detach all sessions and give each the full grace period.

    Leases without a session keep their deadlines. ``feed_id`` and ``feed_partitions`` are used only
    by the first Startup of a cluster. ``clock_epoch`` is the epoch of the cluster time, and
    ``clock_term`` the term of the new leader. Answer: ``StartupResult``.
    """

    member_id: int
    failover_grace_ms: int
    feed_id: str = ""
    feed_partitions: int = 0
    clock_epoch: int = 0
    clock_term: int = 0


@value
class NotedCalls:
    """Numbers of calls on one tube that changed nothing.

    ``take_timeouts``: takes that found no task. ``peeks`` and ``metas``: tasks that were read with
    and without payload.
    """

    tube: str
    take_timeouts: int = 0
    peeks: int = 0
    metas: int = 0


@value
class NoteCalls(Idempotent):
    """Count the calls that the leader answered since the last report.

    Answer: ``CountResult``.
    """

    tubes: Sequence[NotedCalls]


@value
class SetWallOffset(Idempotent):
    """Set the wall offset; the leader decides when and to which value.

    Leases, delays and all other deadlines do not change, because they are in cluster time. Answer:
    ``CountResult``, 1 if the offset has changed.
    """

    wall_offset_ms: int


@value
class SetClusterVersion(Idempotent):
    """Set the cluster version in force, and the planned one (0: none).

    The leader decides both, see ``state.cluster_version``. A version is never lowered. Answer:
    ``CountResult``, 1 if the version was raised.
    """

    version: int
    planned: int


@value
class StartupResult:
    """Number of leases that the new leader released."""

    released: int


def note_calls(state: QueueState, command: NoteCalls) -> CountResult:
    """Add the calls to the counters of their tubes; tubes that do not exist are skipped."""
    known = 0
    for one in command.tubes:
        tube = state.tubes.get(one.tube)
        if tube is not None:
            state.tubes.touch(tube)
            tube.counters.note(CountedOperation.TAKE_TIMEOUT, one.take_timeouts)
            tube.counters.note(CountedOperation.PEEK, one.peeks)
            tube.counters.note(CountedOperation.META, one.metas)
            known += 1
    return CountResult(known)


def startup(state: QueueState, command: Startup) -> StartupResult:
    """Detach all sessions from the old leader, and give each the full grace period.

    Sessions with time to run 0 get the grace period too, because the client did not cause the
    change of leader. Leases without a session keep their deadlines. The first Startup of a cluster
    creates the feed.
    """
    if not state.feed.partitions and command.feed_partitions > 0:
        state.feed.begin(command.feed_id, command.feed_partitions)
    state.clock_epoch = max(state.clock_epoch, command.clock_epoch)
    state.clock_term = max(state.clock_term, command.clock_term)
    state.tubes.totals.begin()
    configured_ms = state.settings.failover_grace_ms
    failover_grace_ms = command.failover_grace_ms if configured_ms is None else configured_ms
    for session in state.sessions.values():
        session.attached = False
        session.orphaned = True
        grace_ms = max(session.ttr_ms, failover_grace_ms)
        session.expires_ms = after(state.now_ms, grace_ms)
        state.set_session_timer(session)
    return StartupResult(0)


def set_wall_offset(state: QueueState, command: SetWallOffset) -> CountResult:
    """Set the wall offset; wall time may go back, but event timestamps never decrease."""
    if command.wall_offset_ms == state.wall_offset_ms:
        return CountResult(0)
    state.event_floor_ms = max(state.event_floor_ms, state.stamp.at_ms)
    state.wall_offset_ms = command.wall_offset_ms
    return CountResult(1)


def set_cluster_version(state: QueueState, command: SetClusterVersion) -> CountResult:
    """Raise the version, and begin or withdraw a plan.

    The machine writes the state in the formats of the new version before the next entry.
    """
    before = state.cluster
    version = check_version(max(before.version, command.version))
    planned_at_ms = before.planned_at_ms if command.planned == before.planned else state.now_ms
    state.cluster = ClusterVersionState(
        version, command.planned, planned_at_ms if command.planned else 0
    )
    return CountResult(int(version > before.version))


DEFINITIONS: Final = (
    CommandDefinition(
        SetClusterVersion,
        set_cluster_version,
        predict=predict_nothing,
        side=replicated,
        answer=None,
    ),
    CommandDefinition(Startup, startup, predict=predict_nothing, side=replicated, answer=None),
    CommandDefinition(NoteCalls, note_calls, predict=predict_nothing, side=replicated, answer=None),
    CommandDefinition(
        SetWallOffset, set_wall_offset, predict=predict_nothing, side=replicated, answer=None
    ),
)
