"""Create, change, remove and list schedules."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypedDict, Unpack

from taskraft._arguments import check_known, choice, flag, text
from taskraft._blocking_facade import blocking
from taskraft._durations import Duration, milliseconds
from taskraft._leader_caller import new_request_id
from taskraft._message_fields import choices_of
from taskraft._planned_task import PlannedTask, check_planned_task
from taskraft.v1 import schedule_service_pb2 as pb

if TYPE_CHECKING:
    from taskraft._blocking_portal import BlockingPortal
    from taskraft._connection import Connection


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule."""

    time_zone: str
    """Name of a time zone, for example "Europe/Vienna"; default UTC."""
    jitter: Duration
    """Maximum additional delay of each task; the delay is derived from a hash of name and time."""
    catch_up: Literal["skip", "one", "all"]
    """Tasks to put for missed times: none (default), one for all missed times, or one for each."""
    overlap: Literal["allow", "skip", "cancel_before"]
    """What happens if the previous task has not ended: put another task (default), put none, or
    cancel the previous task and put another."""
    paused: bool
    """True: put no tasks."""


_CATCH_UPS: Final = choices_of(pb.Schedule.CatchUp)
_OVERLAPS: Final = {
    "allow": pb.Schedule.ALLOW,
    "skip": pb.Schedule.SKIP_OVERLAP,
    "cancel_before": pb.Schedule.CANCEL_BEFORE,
}


class AsyncSchedules:
    """The schedules of a cluster: each puts one task per time of a cron expression."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(
        self,
        name: str,
        cron: str,
        task: PlannedTask,
        *,
        timeout: Duration | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> pb.Schedule:
        """Create a schedule and return it with its next time.

        Args:
            name: 1 to 128 bytes.
            cron: minute, hour, day of month, month, day of week, as in crontab(5).
            task: task to put, made by `Tube.task`.
            timeout: time limit of the call, retries included.
            **options: see `ScheduleOptions`.

        Raises:
            ScheduleExists: a schedule with this name exists.
            InvalidField: the cron expression or the time zone is not valid.
        """
        schedule = _schedule(name, cron, task, options)
        request = pb.CreateScheduleRequest(request_id=new_request_id(), schedule=schedule)
        response = await self._connection.call(
            lambda node: node.schedules.CreateSchedule, request, timeout=timeout
        )
        return response.schedule

    async def update(
        self, schedule: pb.Schedule, *, timeout: Duration | None = None
    ) -> pb.Schedule:
        """Replace a schedule by a changed one, for example a paused one; return it.

        Raises:
            ScheduleNotFound: no schedule has this name.
        """
        request = pb.UpdateScheduleRequest(request_id=new_request_id(), schedule=schedule)
        response = await self._connection.call(
            lambda node: node.schedules.UpdateSchedule, request, timeout=timeout
        )
        return response.schedule

    async def delete(self, name: str, *, timeout: Duration | None = None) -> None:
        """Remove a schedule; tasks that it has already put stay.

        Raises:
            ScheduleNotFound: no schedule has this name.
        """
        request = pb.DeleteScheduleRequest(request_id=new_request_id(), name=text("name", name))
        await self._connection.call(
            lambda node: node.schedules.DeleteSchedule, request, timeout=timeout
        )

    async def list(self, *, timeout: Duration | None = None) -> list[pb.Schedule]:
        """Return all schedules by name, with their next time and the result of the last."""
        pages = self._connection.pages(
            lambda node: node.schedules.ListSchedules, pb.ListSchedulesRequest(), timeout=timeout
        )
        return [schedule async for page in pages for schedule in page.schedules]


class Schedules:
    """The schedules of a cluster, for threads."""

    def __init__(self, schedules: AsyncSchedules, portal: BlockingPortal) -> None:
        self._inner = schedules
        self._portal = portal

    create = blocking(AsyncSchedules.create)
    update = blocking(AsyncSchedules.update)
    delete = blocking(AsyncSchedules.delete)
    list = blocking(AsyncSchedules.list)


def _schedule(name: str, cron: str, task: PlannedTask, options: ScheduleOptions) -> pb.Schedule:
    check_known(options, ScheduleOptions, "a schedule has no option")
    return pb.Schedule(
        name=text("name", name),
        cron=text("cron", cron),
        time_zone=text("time_zone", options.get("time_zone", "")),
        jitter_ms=milliseconds(options.get("jitter", 0), "jitter"),
        catch_up=pb.Schedule.CatchUp.ValueType(
            choice("catch_up", options.get("catch_up", "skip"), _CATCH_UPS)
        ),
        overlap=pb.Schedule.Overlap.ValueType(
            choice("overlap", options.get("overlap", "allow"), _OVERLAPS)
        ),
        tube=check_planned_task("task", task).tube,
        spec=task.alone(),
        paused=flag("paused", options.get("paused", False)),
    )
