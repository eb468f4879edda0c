"""Counts of tasks and operations, by tube and in total."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from taskraft._contract_values import converted, nested, tuple_of, value_of
from taskraft._instants import instant_of
from taskraft._task import STATES
from taskraft.v1.tube_service_pb2 import GetStatisticsRequest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from taskraft.v1 import tube_service_pb2

Rank = Literal["ready", "buried", "oldest_ready"]
"""What ranks tubes: most READY tasks, most BURIED tasks, or the oldest READY task."""
RANKS: Final = {
    name.lower(): number for name, number in GetStatisticsRequest.OrderBy.items() if number
}
_STATE = converted(lambda number: STATES.get(number, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounts:
    """Current number of tasks by state."""

    ready: int
    delayed: int
    taken: int
    buried: int
    done: int
    zombie: int
    held: int
    total: int
    """Tasks in all states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCounts:
    """Number of tasks that each operation affected; refused items are not counted."""

    put: int
    """Tasks that were put."""
    take: int
    """Tasks that were taken."""
    ack: int
    """Tasks that were acknowledged."""
    release: int
    """Tasks that their holders released."""
    bury: int
    """Tasks that were buried."""
    kick: int
    """Tasks that were kicked."""
    delete: int
    """Tasks that were deleted."""
    touch: int
    """Tasks whose leases were extended by a touch."""
    ttl: int
    """Tasks that ended with their time to live."""
    ttr: int
    """Leases that ended with their time to run."""
    delay: int
    """Tasks that became READY after a delay."""
    session_release: int
    """Leases that ended with their session."""
    startup_release: int
    """Leases that ended because no client resumed their session after a change of leader or a
    restart of the cluster."""
    truncate: int
    """Tasks that TruncateTube removed."""
    finished: int
    """Tasks that have ended, whether kept or not: acknowledged, failed, deleted or expired. Tasks
    that TruncateTube removed are not counted.
    """
    release_all: int
    """Tasks that ReleaseAll released."""
    move: int
    """Tasks that were moved from or to another tube."""
    snatch: int
    """Leases that SnatchTasks revoked."""
    restart: int
    """Tasks that RestartTasks restarted."""
    switch: int
    """Tasks that SwitchTasks changed."""
    cancel: int
    """Taken tasks whose holders were asked to stop."""
    update: int
    """Tasks that UpdateTasks changed."""
    group_start: int
    """Tasks that are no longer held, because their group was started."""
    retention: int
    """Finished tasks that were removed because their retention time was over."""
    urgent: int
    """Part of put: tasks with the position FRONT."""
    requeue: int
    """Part of release: tasks with the position BACK."""
    done: int
    """Part of ack: tasks that were kept as DONE or ZOMBIE."""
    dig: int
    """Part of kick: tasks that were selected by id, key or filter."""
    take_timeout: int
    """Takes that found no task within their wait. A crash of the leader loses at most the last 10 s
    of this count, of `peek` and of `meta`."""
    peek: int
    """Tasks returned by GetTasks with payload."""
    meta: int
    """Tasks returned by GetTasks without payload."""
    ttl_ready: int
    """Part of ttl: READY tasks."""
    ttl_delayed: int
    """Part of ttl: DELAYED tasks."""
    ttl_taken: int
    """Part of ttl: TAKEN tasks."""
    ttl_buried: int
    """Part of ttl: BURIED tasks."""
    ttl_held: int
    """Part of ttl: HELD tasks."""
    dependencies_done: int
    """Tasks that are no longer held, because their last dependency ended."""
    dependency_failed: int
    """Tasks that were cancelled, because a dependency failed."""
    fail: int
    """Failed attempts, as RetryPolicy defines them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionCount:
    """Number of tasks that went from one state to another."""

    from_state: str = field(metadata=_STATE)
    """State before, for example "READY"; empty: the task did not exist."""
    to_state: str = field(metadata=_STATE)
    """State after; empty: the task no longer exists."""
    count: int
    """Number of tasks."""
    crossing: bool
    """True: the empty state stands for another tube."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TubeStatistics:
    """Counts of one tube, or of several tubes together."""

    tube: str
    """Name of the tube; empty: a total."""
    tasks: TaskCounts = field(metadata=nested(TaskCounts))
    """Current number of tasks by state."""
    calls: OperationCounts = field(metadata=nested(OperationCounts))
    """Operations since the tube was created."""
    transitions: tuple[TransitionCount, ...] = field(metadata=tuple_of(TransitionCount))
    """Transitions between states, if they were requested."""
    oldest_ready_ms: int
    """Time since which the oldest READY task has been READY; 0: no task is READY."""
    payload_bytes: int
    """Total size of the payloads."""
    waiting: int
    """Number of consumers that wait for a task."""
    calls_since_start: OperationCounts = field(metadata=nested(OperationCounts))
    """Operations since the leader was elected."""
    message: tube_service_pb2.TubeStatistics = field(repr=False, compare=False)
    """The counts as the server returned them, as a message."""

    @classmethod
    def of(cls, message: tube_service_pb2.TubeStatistics) -> TubeStatistics:
        """Return the counts of a message."""
        return value_of(cls, message)

    @property
    def oldest_ready(self) -> datetime | None:
        """Time since which the oldest READY task has been READY; None: no task is READY."""
        return instant_of(self.oldest_ready_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Counts of several tubes."""

    tubes: tuple[TubeStatistics, ...]
    """Counts by tube, in the order of the names or of the rank."""
    total: TubeStatistics
    """Sum of all requested tubes."""
    now_ms: int
    """Time of the cluster at the count, in ms since the Unix epoch; the reference for ages."""
    revision: int
    """Log index of the counted state; of the oldest page if the counts have several pages."""
    tube_count: int
    """Number of tubes that `total` covers, listed or not."""

    @classmethod
    def of(
        cls, message: tube_service_pb2.GetStatisticsResponse, tubes: Iterable[TubeStatistics]
    ) -> Statistics:
        """Return the totals of a message with the given counts by tube."""
        return cls(
            tubes=tuple(tubes),
            total=TubeStatistics.of(message.total),
            now_ms=message.now_ms,
            revision=message.revision,
            tube_count=message.tube_count,
        )

    @property
    def now(self) -> datetime | None:
        """Time of the cluster at the count; the reference for ages."""
        return instant_of(self.now_ms)
