"""Define a schedule, and show it to callers."""

from __future__ import annotations

from enum import IntEnum

from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.values import value


class Overlap(IntEnum):
    """What happens when the task before has not ended; numbers are those of the contract."""

    ALLOW = 1
    SKIP = 2
    CANCEL_BEFORE = 3


@value
class ScheduleSpec:
    """What a client says about a schedule.

    Args:
        tube: where the tasks are put.
        pattern: the times, opaque to the queue; another pattern begins anew.
        overlap: what happens when the task before has not ended.
        paused: puts nothing.
        spec: the producer's TaskSpec as it came, opaque to the queue.
        body: the client's message without the spec, kept to be shown.
    """

    tube: str
    pattern: str
    overlap: Overlap = Overlap.ALLOW
    paused: bool = False
    spec: bytes = b""
    body: bytes = b""


@value
class ScheduledTime:
    """A time of a schedule; ``mark`` is appended to the spec, so that the task tells its time."""

    at_ms: int
    mark: bytes = b""


@value
class ScheduleView:
    """A schedule as it is shown.

    Args:
        name: unique in the cluster.
        options: what the client said.
        version: grows with each update.
        since_ms: created, or resumed after a pause; times before were missed.
        done_ms: times up to here are dealt with.
        next_ms: the first time after that; 0: none.
        last_ms: the last time for which a task was put; 0: none yet.
        last_task_id: that task.
        left_out: times for which the queue refused a task, or left it out for an overlap.
        refusal: why the last put was refused; None: it was not.
    """

    name: str
    options: ScheduleSpec
    version: int
    since_ms: int
    done_ms: int
    next_ms: int
    last_ms: int
    last_task_id: int
    left_out: int
    refusal: Refusal | None = None
