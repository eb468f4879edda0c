"""Create, change, remove, read and list schedules."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict, Unpack

from google.protobuf.field_mask_pb2 import FieldMask

from taskraft._arguments import check_known, choice, flag, text, wrong_type
from taskraft._blocking_facade import blocking
from taskraft._contract_values import choice_name, converted, value_of
from taskraft._durations import Duration, milliseconds
from taskraft._error_translation import from_item
from taskraft._instants import EPOCH, instant_ms, instant_of
from taskraft._leader_caller import new_request_id
from taskraft._message_fields import choices_of
from taskraft._planned_task import PlannedTask, check_planned_task
from taskraft.v1 import schedule_service_pb2 as pb

if TYPE_CHECKING:
    from datetime import datetime

    from taskraft import errors
    from taskraft._blocking_portal import BlockingPortal
    from taskraft._connection import Connection
    from taskraft.v1 import task_pb2

CatchUp: TypeAlias = Literal["skip", "one", "all"]
Overlap: TypeAlias = Literal["allow", "skip", "cancel_before"]


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule."""

    time_zone: str
    """Name of a time zone, for example "Europe/Vienna"; default UTC."""
    jitter: Duration
    """Maximum additional delay of each task; the delay is derived from a hash of name and time."""
    catch_up: CatchUp
    """Tasks to put for missed times: none (default), one for all missed times, or one for each."""
    overlap: Overlap
    """Policy for a due time while the previous task has not ended: put another task (default), put
    none, or cancel the previous task and put another.
    """
    paused: bool
    """True: put no tasks."""


_CATCH_UPS: Final = choices_of(pb.Schedule.CatchUp)
_OVERLAPS: Final = {
    "allow": pb.Schedule.ALLOW,
    "skip": pb.Schedule.SKIP_OVERLAP,
    "cancel_before": pb.Schedule.CANCEL_BEFORE,
}


_OVERLAP_NAMES: Final = {number: name for name, number in _OVERLAPS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as the server describes it.

    `dataclasses.replace` makes a changed copy for `Schedules.update`.
    """

    name: str
    """Name of the schedule."""
    cron: str
    """Minute, hour, day of month, month, day of week, as in crontab(5)."""
    time_zone: str
    """Name of the time zone; empty: UTC."""
    jitter_ms: int
    """Maximum additional delay of each task, in ms."""
    catch_up: CatchUp = field(metadata=choice_name(pb.Schedule.CatchUp))
    """Tasks to put for missed times."""
    overlap: Overlap = field(metadata=converted(lambda number: _OVERLAP_NAMES.get(number, "allow")))
    """Policy for a due time while the previous task has not ended."""
    tube: str
    """Name of the tube."""
    spec: task_pb2.TaskSpec | None = field(default=None, metadata=converted(lambda spec: spec))
    """The task as a message; None if the caller may not read the tube."""
    paused: bool
    """True: the schedule puts no tasks."""
    next_ms: int
    """Next time, in ms since the Unix epoch; 0: there is none, or the schedule is paused."""
    last_ms: int
    """Last time for which a task was put; 0: none."""
    last_task_id: int
    """Id of the last task; 0: none."""
    left_out: int
    """Number of times without a task, because the put was refused or the previous task had not
    ended."""
    last_error: errors.TaskraftError | None = field(default=None, metadata=converted(from_item))
    """Reason for which the last put was refused; None: the put was not refused."""
    etag: str = ""
    """Opaque tag of the definition, for `if_unchanged`; empty: an older server."""
    owner: str = ""
    """Principal that has created the schedule; empty: created without access control."""
    message: pb.Schedule = field(repr=False, compare=False)
    """The schedule as the server returned it, as a message."""

    @classmethod
    def of(cls, message: pb.Schedule) -> Schedule:
        """Return the schedule of a message."""
        return value_of(cls, message)

    @property
    def task(self) -> PlannedTask | None:
        """The task to put; None if the caller may not read the tube."""
        return None if self.spec is None else PlannedTask(self.tube, self.spec)

    @property
    def next(self) -> datetime | None:
        """Next time; None: there is none, or the schedule is paused."""
        return instant_of(self.next_ms)

    @property
    def last(self) -> datetime | None:
        """Last time for which a task was put; None: no task was put."""
        return instant_of(self.last_ms)


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
    ) -> Schedule:
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
        schedule = schedule_message(name, cron, task, options)
        request = pb.CreateScheduleRequest(request_id=new_request_id(), schedule=schedule)
        response = await self._connection.call(
            lambda node: node.schedules.CreateSchedule, request, timeout=timeout
        )
        return Schedule.of(response.schedule)

    async def change(
        self,
        name: str,
        *,
        cron: str | None = None,
        task: PlannedTask | None = None,
        timeout: Duration | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Change only the given parts of a schedule, for example `change(name, paused=True)`.

        Args:
            name: name of the schedule.
            cron: new cron expression; None: keep it.
            task: new task to put, made by `Tube.task`; None: keep it.
            timeout: time limit of the call, retries included.
            **options: new values; see `ScheduleOptions`. Other options keep their values.

        Raises:
            ScheduleNotFound: no schedule has this name.
            InvalidField: the cron expression or the time zone is not valid.
        """
        changed = _changed_parts(name, cron, task, options)
        paths = sorted(
            {_FIELD_OF_OPTION.get(option, option) for option in options}
            | ({"cron"} if cron is not None else set())
            | ({"tube", "spec"} if task is not None else set())
        )
        if not paths:
            raise ValueError("give at least one part of the schedule to change")
        request = pb.UpdateScheduleRequest(
            request_id=new_request_id(), schedule=changed, update_mask=FieldMask(paths=paths)
        )
        response = await self._connection.call(
            lambda node: node.schedules.UpdateSchedule, request, timeout=timeout
        )
        return Schedule.of(response.schedule)

    async def update(
        self, schedule: Schedule, *, if_unchanged: bool = False, timeout: Duration | None = None
    ) -> Schedule:
        """Replace a schedule by a changed copy; return it.

        `change` changes single parts.

        Args:
            schedule: a changed copy, for example `replace(schedule, cron="0 3 * * *")`.
            if_unchanged: refuse the update if the definition on the server has changed since
                `schedule` was read.
            timeout: time limit of the call, retries included.

        Raises:
            ScheduleNotFound: no schedule has this name.
            ScheduleChanged: `if_unchanged` is set, and the definition has changed.
        """
        if not isinstance(schedule, Schedule):
            raise wrong_type("schedule", "a Schedule, as list() returns it", schedule)
        request = pb.UpdateScheduleRequest(
            request_id=new_request_id(),
            schedule=_message_of(schedule),
            etag=schedule.etag if flag("if_unchanged", if_unchanged) else "",
        )
        response = await self._connection.call(
            lambda node: node.schedules.UpdateSchedule, request, timeout=timeout
        )
        return Schedule.of(response.schedule)

    async def delete(self, name: str, *, timeout: Duration | None = None) -> None:
        """Remove a schedule; tasks that it has already put are kept.

        Raises:
            ScheduleNotFound: no schedule has this name.
        """
        request = pb.DeleteScheduleRequest(request_id=new_request_id(), name=text("name", name))
        await self._connection.call(
            lambda node: node.schedules.DeleteSchedule, request, timeout=timeout
        )

    async def get(self, name: str, *, timeout: Duration | None = None) -> Schedule:
        """Return a schedule with its next time and the result of its last put.

        Raises:
            ScheduleNotFound: no schedule has this name.
        """
        response = await self._connection.call(
            lambda node: node.schedules.GetSchedule,
            pb.GetScheduleRequest(name=text("name", name)),
            timeout=timeout,
        )
        return Schedule.of(response.schedule)

    async def times(
        self,
        name: str,
        count: int = 10,
        *,
        after: datetime | None = None,
        timeout: Duration | None = None,
    ) -> tuple[datetime, ...]:
        """Return the first times of a schedule after an instant, without jitter.

        Args:
            name: name of the schedule; it may be paused.
            count: maximum number of times, 0 to 100. Times later than 10 years are left out.
            after: instant with a time zone, also in the past; default: now.
            timeout: time limit of the call, retries included.

        Raises:
            ScheduleNotFound: no schedule has this name.
        """
        request = pb.GetScheduleRequest(
            name=text("name", name),
            times_max=count,
            after_ms=0 if after is None else instant_ms("after", after),
        )
        response = await self._connection.call(
            lambda node: node.schedules.GetSchedule, request, timeout=timeout
        )
        return tuple(EPOCH + timedelta(milliseconds=at_ms) for at_ms in response.times_ms)

    async def list(self, *, timeout: Duration | None = None) -> list[Schedule]:
        """Return all schedules by name, with the next time and the result of the last put."""
        pages = self._connection.pages(
            lambda node: node.schedules.ListSchedules, pb.ListSchedulesRequest(), timeout=timeout
        )
        return [Schedule.of(found) async for page in pages for found in page.schedules]


class Schedules:
    """The schedules of a cluster, for threads."""

    def __init__(self, schedules: AsyncSchedules, portal: BlockingPortal) -> None:
        self._inner = schedules
        self._portal = portal

    create = blocking(AsyncSchedules.create)
    change = blocking(AsyncSchedules.change)
    update = blocking(AsyncSchedules.update)
    delete = blocking(AsyncSchedules.delete)
    get = blocking(AsyncSchedules.get)
    times = blocking(AsyncSchedules.times)
    list = blocking(AsyncSchedules.list)


def schedule_message(
    name: str, cron: str, task: PlannedTask, options: ScheduleOptions
) -> pb.Schedule:
    """Return the message of a schedule.

    Raises:
        TypeError: a value has a wrong type, or an option is unknown.
        ValueError: a value is out of range.
    """
    complete: ScheduleOptions = {"catch_up": "skip", "overlap": "allow", **options}
    return _changed_parts(name, text("cron", cron), check_planned_task("task", task), complete)


_FIELD_OF_OPTION: Final = {"jitter": "jitter_ms"}
"""Names of options that are not the names of their fields in the contract."""


def _changed_parts(
    name: str, cron: str | None, task: PlannedTask | None, options: ScheduleOptions
) -> pb.Schedule:
    """Return a message with the given parts of a schedule; see `schedule_message`."""
    check_known(options, ScheduleOptions, "a schedule has no option")
    message = pb.Schedule(
        name=text("name", name),
        cron="" if cron is None else text("cron", cron),
        time_zone=text("time_zone", options.get("time_zone", "")),
        jitter_ms=milliseconds(options.get("jitter", 0), "jitter"),
        paused=flag("paused", options.get("paused", False)),
    )
    if "catch_up" in options:
        number = choice("catch_up", options["catch_up"], _CATCH_UPS)
        message.catch_up = pb.Schedule.CatchUp.ValueType(number)
    if "overlap" in options:
        number = choice("overlap", options["overlap"], _OVERLAPS)
        message.overlap = pb.Schedule.Overlap.ValueType(number)
    if task is not None:
        message.tube = check_planned_task("task", task).tube
        message.spec.CopyFrom(task.alone())
    return message


def _message_of(schedule: Schedule) -> pb.Schedule:
    """Return a schedule as a message, without the fields that the server sets.

    Raises:
        TypeError: a field has a wrong type.
        ValueError: a field has an invalid value, or the task is missing.
    """
    task = schedule.task
    if task is None:
        raise ValueError(
            f"the task of the schedule {schedule.name!r} is not readable; set tube and spec"
        )
    options: ScheduleOptions = {
        "time_zone": schedule.time_zone,
        "jitter": schedule.jitter_ms / 1_000,
        "catch_up": schedule.catch_up,
        "overlap": schedule.overlap,
        "paused": schedule.paused,
    }
    return schedule_message(schedule.name, schedule.cron, task, options)
