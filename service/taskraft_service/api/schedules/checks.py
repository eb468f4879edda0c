"""Check the requests of ScheduleService against the limits of the contract."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import schedule_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.tasks.put_checks import check_stored_spec
from taskraft_service.languages.cron import CronMalformed, cron

ANY_TIME: Final = "* * * * *"
_CHOICES: Final = {
    "catch_up": frozenset(pb.Schedule.CatchUp.values()),
    "overlap": frozenset(pb.Schedule.Overlap.values()),
}


def check_schedule(schedule: pb.Schedule, request_id: str) -> None:
    """Refuse a schedule that breaks a limit, or whose times cannot be reckoned."""
    wrong = Violations()
    wrong.check_request_id(request_id)
    wrong.check_name("schedule.name", schedule.name)
    wrong.check_tube("schedule.tube", schedule.tube)
    wrong.check_range("schedule.jitter_ms", schedule.jitter_ms, 0, limits.JITTER_MAX_MS)
    for field, known in _CHOICES.items():
        wrong.check_choice(f"schedule.{field}", getattr(schedule, field), known)
    for expression, time_zone in ((schedule.cron, ""), (ANY_TIME, schedule.time_zone)):
        try:
            cron(expression, time_zone)
        except CronMalformed as error:
            position = {"position": str(error.position)}
            wrong.add(f"schedule.{error.field}", str(error), position)
    check_stored_spec(wrong, "schedule.spec", schedule.spec)
    wrong.raise_if_any()
