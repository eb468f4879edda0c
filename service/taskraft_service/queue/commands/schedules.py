"""Put tasks at set times. Which times these are, the leader reckons; the log has what it found."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from taskraft_service.queue.commands.refusal import Refusal
from taskraft_service.queue.commands.repetition import Idempotent
from taskraft_service.queue.values import value


class Overlap(IntEnum):
    """What happens when the task before has not ended; numbers are those of the contract."""

    ALLOW = 1
    SKIP = 2
    CANCEL_BEFORE = 3


@value
class ScheduleOptions:
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
class CreateSchedule:
    """Create a schedule whose first time is ``next_ms`` (0: none). Answer: ``ScheduleResult``."""

    name: str
    options: ScheduleOptions
    next_ms: int
    request_id: str = ""
    request_hash: int = 0


@value
class UpdateSchedule:
    """Replace a schedule. Answer: ``ScheduleResult``.

    ``next_ms`` counts where the pattern changes.
    """

    name: str
    options: ScheduleOptions
    next_ms: int
    request_id: str = ""
    request_hash: int = 0


@value
class DeleteSchedule:
    """Remove a schedule; its tasks stay. Answer: ``CountResult``."""

    name: str
    request_id: str = ""
    request_hash: int = 0


@value
class Slot:
    """A time of a schedule; ``mark`` is appended to the spec, so that the task tells its time."""

    at_ms: int
    mark: bytes = b""


@value
class RunSchedule(Idempotent):
    """Put one task for each slot that no run before has dealt with. Answer: ``CountResult``.

    Args:
        name: of the schedule.
        version: the schedule as it was when the slots were reckoned; another one ignores them.
        slots: in order.
        until_ms: times up to here are dealt with, put or left out.
        next_ms: the first time after that; 0: none.
    """

    name: str
    version: int
    slots: Sequence[Slot]
    until_ms: int
    next_ms: int


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
    options: ScheduleOptions
    version: int
    since_ms: int
    done_ms: int
    next_ms: int
    last_ms: int
    last_task_id: int
    left_out: int
    refusal: Refusal | None = None


@value
class ScheduleResult:
    """The schedule as it is now."""

    schedule: ScheduleView
