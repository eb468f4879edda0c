"""The definition of a schedule, and a schedule as callers see it."""

from __future__ import annotations

from enum import IntEnum

from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.values import value


class Overlap(IntEnum):
    """What happens at a scheduled time while the last task is open; numbers of the contract."""

    ALLOW = 1
    SKIP = 2
    CANCEL_BEFORE = 3


@value
class ScheduleSpec:
    """Definition of a schedule.

    Args:
        tube: tube into which the tasks are put.
        pattern: the times, opaque to the queue; a schedule with another pattern starts from now.
        overlap: what happens while the last task is open.
        paused: put no tasks.
        spec: the producer's TaskSpec as received, opaque to the queue.
        body: the client's message without the spec, kept to be returned.
    """

    tube: str
    pattern: str
    overlap: Overlap = Overlap.ALLOW
    paused: bool = False
    spec: bytes = b""
    body: bytes = b""


@value
class ScheduledTime:
    """A due time of a schedule; ``mark`` is appended to the spec, to tell the task its time."""

    at_ms: int
    mark: bytes = b""


@value
class ScheduleView:
    """A schedule as callers see it.

    Args:
        name: unique in the cluster.
        options: the definition.
        version: grows with each update.
        since_ms: instant of the creation, or of the end of the last pause.
        done_ms: instant up to which all scheduled times are done.
        next_ms: next scheduled time; 0: none.
        last_ms: last scheduled time for which a task was put; 0: none yet.
        last_task_id: id of that task.
        left_out: number of scheduled times without a task, because of a refusal or an overlap.
        refusal: why the last put was refused, or None.
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
