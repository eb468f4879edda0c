"""Put tasks at set times. Which times these are, the leader reckons; the log has what it found."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_service.queue.entities.idempotent import Idempotent
from taskraft_service.queue.entities.schedule_view import ScheduledTime, ScheduleSpec, ScheduleView
from taskraft_service.queue.values import value


@value
class CreateSchedule:
    """Create a schedule whose first time is ``next_ms`` (0: none). Answer: ``ScheduleResult``."""

    name: str
    options: ScheduleSpec
    next_ms: int
    request_id: str = ""
    request_hash: int = 0


@value
class UpdateSchedule:
    """Replace a schedule. Answer: ``ScheduleResult``.

    ``next_ms`` counts where the pattern changes.
    """

    name: str
    options: ScheduleSpec
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
    slots: Sequence[ScheduledTime]
    until_ms: int
    next_ms: int


@value
class ScheduleResult:
    """The schedule as it is now."""

    schedule: ScheduleView
