"""ScheduleService: create, change, delete, read and list schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import Final, Literal, TypeAlias, TypeVar, get_args

from google.protobuf.message import Message

from taskraft.v1 import error_pb2
from taskraft.v1 import schedule_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.access.caller import Caller, PermissionDenied
from taskraft_service.access.permissions import ALL_TUBES, Verb
from taskraft_service.api.rpc.methods import ExecutionSite, ServiceMethods, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.paging import list_fingerprint, page_of
from taskraft_service.api.rpc.request_steps import MESSAGE_STEPS
from taskraft_service.api.rpc.status import CallRefused, error_message
from taskraft_service.api.rpc.violations import Violations, check_page_request
from taskraft_service.api.state.checks import DiskSpaceGuard
from taskraft_service.api.state.command_executor import CommandExecutor, request_key, result_of
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks.put_checks import check_stored_spec
from taskraft_service.command_codecs.command_codec import CommandCodec
from taskraft_service.command_codecs.schedules import (
    CREATE_SCHEDULE,
    DELETE_SCHEDULE,
    UPDATE_SCHEDULE,
)
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.languages.cron import CronMalformed, cron
from taskraft_service.languages.patterns import PatternSet
from taskraft_service.leader.schedule_plan import first_time
from taskraft_service.limits import PAGE_SIZE_MAX
from taskraft_service.queue.entities.refusal import CountResult
from taskraft_service.queue.operations.schedules import ScheduleResult
from taskraft_service.queue.state.schedule_registry import ScheduleView
from taskraft_service.stubs.log.v1 import log_pb2

M = TypeVar("M", bound=Message)
Request = TypeVar("Request", bound=Message)
SERVICE: Final = pb.DESCRIPTOR.services_by_name["ScheduleService"]
_MERGES_MAX: Final = 10
"""Maximum number of attempts to merge an update while other callers change the schedule."""
_Field: TypeAlias = Literal[
    "cron", "time_zone", "jitter_ms", "catch_up", "overlap", "tube", "spec", "paused"
]
_CHANGEABLE: Final[tuple[_Field, ...]] = get_args(_Field)
"""Fields of a schedule that callers set, without the name."""
TIMES_MAX: Final = 100
"""Maximum number of times that one call computes."""
TIMES_WITHIN_MS: Final = 10 * 366 * 86_400_000
"""Maximum distance of a computed time from the given instant. The search goes from day to day, so
the limit bounds the cost of rare times.
"""
_EVERY_MINUTE: Final = "* * * * *"
_CHOICES: Final = {
    "catch_up": frozenset(pb.Schedule.CatchUp.values()),
    "overlap": frozenset(pb.Schedule.Overlap.values()),
}


class ScheduleService:
    """The methods of ScheduleService.

    Args:
        executor: executes commands.
        reader: reads the queue.
        disk: refuses new schedules while disk space is low.
        wall_now_ms: the cluster's wall time, in ms.
        problems: errors of the schedules whose times this node, as the leader, cannot compute.
    """

    def __init__(
        self,
        executor: CommandExecutor,
        reader: QueueReader,
        disk: DiskSpaceGuard,
        wall_now_ms: Callable[[], int],
        problems: Callable[[], Mapping[str, CronMalformed]],
    ) -> None:
        self._problems = problems
        self._executor = executor
        self._reader = reader
        self._disk = disk
        self._wall_now_ms = wall_now_ms

    def methods(self) -> ServiceMethods:
        """Return the methods of ScheduleService."""
        return ServiceMethods(
            SERVICE,
            (
                UnaryMethod(
                    "CreateSchedule", pb.CreateScheduleRequest, ExecutionSite.LEADER, self.create
                ),
                UnaryMethod(
                    "UpdateSchedule", pb.UpdateScheduleRequest, ExecutionSite.LEADER, self.update
                ),
                UnaryMethod(
                    "DeleteSchedule", pb.DeleteScheduleRequest, ExecutionSite.LEADER, self.delete
                ),
                UnaryMethod(
                    "GetSchedule",
                    pb.GetScheduleRequest,
                    ExecutionSite.BY_CONSISTENCY,
                    self.get,
                    lambda request: self._reader.is_local(request.consistency),
                ),
                UnaryMethod(
                    "ListSchedules",
                    pb.ListSchedulesRequest,
                    ExecutionSite.BY_CONSISTENCY,
                    self.list_schedules,
                    lambda request: self._reader.is_local(request.consistency),
                ),
            ),
            bidirectional={},
            server_streaming={},
        )

    def _check(self, request: pb.CreateScheduleRequest | pb.UpdateScheduleRequest) -> None:
        violations = _check_schedule(request)
        violations.allow_zeros(lambda: self._reader.defines_zero((request.schedule.tube,)))
        violations.raise_if_any()

    async def create(self, call: UnaryCall[pb.CreateScheduleRequest]) -> pb.CreateScheduleResponse:
        """Create a schedule; the log stores its first due time."""
        request = call.request
        self._check(request)
        self._disk.check()
        message = log_pb2.CreateSchedule(request=request, next_ms=self._first_ms(request))
        schedule, revision = await self._store(CREATE_SCHEDULE, message, call)
        return pb.CreateScheduleResponse(schedule=schedule, revision=revision)

    async def update(self, call: UnaryCall[pb.UpdateScheduleRequest]) -> pb.UpdateScheduleResponse:
        """Replace a schedule, or the fields that the mask of the request names."""
        if not call.request.update_mask.paths:
            return await self._replace(call.request, call)
        _check_mask(call.request)
        for attempt in range(_MERGES_MAX):
            merged = self._merged(call)
            if merged is None:
                # The queue answers: with the kept answer of a repeated request, or NOT_FOUND.
                return await self._propose(log_pb2.UpdateSchedule(request=call.request), call)
            try:
                return await self._replace(merged, call)
            except CallRefused as refusal:
                is_stale = refusal.reason == error_pb2.Error.SCHEDULE_CHANGED
                if not is_stale or call.request.etag or attempt == _MERGES_MAX - 1:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _replace(
        self, request: pb.UpdateScheduleRequest, call: UnaryCall[pb.UpdateScheduleRequest]
    ) -> pb.UpdateScheduleResponse:
        """Replace a schedule by the complete schedule of ``request``."""
        self._check(request)
        if not request.schedule.paused:
            # Pausing a schedule must work even when disk space is low.
            self._disk.check()
        message = log_pb2.UpdateSchedule(request=request, next_ms=self._first_ms(request))
        return await self._propose(message, call)

    async def _propose(
        self, message: log_pb2.UpdateSchedule, call: UnaryCall[pb.UpdateScheduleRequest]
    ) -> pb.UpdateScheduleResponse:
        schedule, revision = await self._store(UPDATE_SCHEDULE, message, call)
        return pb.UpdateScheduleResponse(schedule=schedule, revision=revision)

    def _merged(self, call: UnaryCall[pb.UpdateScheduleRequest]) -> pb.UpdateScheduleRequest | None:
        """Return the request with the complete schedule, or None if the schedule does not exist.

        The etag of the result is that of the definition into which the fields were merged, so a
        change that another caller makes meanwhile is not overwritten.

        Raises:
            PermissionDenied: the caller may not set the merged schedule, or would move a task that
                the caller may not read to another tube.
        """
        request = call.request
        view = self._reader.applied.schedule(request.schedule.name)
        if view is None:
            return None
        merged = pb.UpdateScheduleRequest()
        merged.CopyFrom(request)
        merged.ClearField("update_mask")
        merged.schedule.CopyFrom(schedule_message(view))
        merged.etag = request.etag or view.options.etag
        paths = request.update_mask.paths
        for field in _CHANGEABLE:
            if field in paths:
                merged.schedule.ClearField(field)
        merged.schedule.MergeFrom(request.schedule)
        call.caller.authorize(merged)
        reads_task = view.options.tube != merged.schedule.tube and "spec" not in paths
        if reads_task and not call.caller.may(Verb.READ, view.options.tube):
            raise PermissionDenied(call.caller.name, Verb.READ.value, view.options.tube)
        return merged

    def _first_ms(self, request: pb.CreateScheduleRequest | pb.UpdateScheduleRequest) -> int:
        return first_time(request.schedule, self._wall_now_ms())

    async def _store(
        self, codec: CommandCodec[M], message: M, call: UnaryCall[Request]
    ) -> tuple[pb.Schedule, int]:
        """Commit a schedule with its first due time; return the schedule and its revision."""
        encoded = encode_leader_command(codec, message, request_key(call))
        outcome = await self._executor.execute_encoded(encoded, call.deadline)
        stored = result_of(outcome, ScheduleResult)
        return _visible_schedule(stored.schedule, call.caller), outcome.index

    async def delete(self, call: UnaryCall[pb.DeleteScheduleRequest]) -> pb.DeleteScheduleResponse:
        """Delete a schedule."""
        violations = Violations()
        violations.check_request_id(call.request.request_id, call.request.client_id)
        violations.check_name("name", call.request.name)
        violations.check_text("etag", call.request.etag, limits.NAME_BYTES_MAX)
        violations.raise_if_any()
        outcome = await self._executor.execute(DELETE_SCHEDULE, call)
        result_of(outcome, CountResult)
        return pb.DeleteScheduleResponse(revision=outcome.index)

    async def get(self, call: UnaryCall[pb.GetScheduleRequest]) -> pb.GetScheduleResponse:
        """Return a schedule."""
        request = call.request
        violations = Violations()
        violations.check_name("name", request.name)
        violations.check_consistency(request.consistency)
        violations.check_range("times_max", request.times_max, 0, TIMES_MAX)
        violations.check_not_negative("after_ms", request.after_ms)
        violations.raise_if_any()
        queue = await self._reader.queue(request.consistency)
        view = queue.schedule(request.name)
        if view is None:
            text = f"no schedule is called {request.name!r}"
            metadata = {"schedule": request.name}
            raise CallRefused(error_pb2.Error.SCHEDULE_NOT_FOUND, text, metadata)
        schedule = self._shown(view, call.caller)
        after_ms = request.after_ms or self._wall_now_ms()
        try:
            times = _times(schedule, after_ms, request.times_max)
        except CronMalformed as error:
            times = ()
            schedule.last_error.CopyFrom(_problem_message(error))
        return pb.GetScheduleResponse(schedule=schedule, times_ms=times)

    async def list_schedules(
        self, call: UnaryCall[pb.ListSchedulesRequest]
    ) -> pb.ListSchedulesResponse:
        """Return a page of the schedules, in order of name."""
        request = call.request
        check_page_request(request)
        queue = await self._reader.queue(request.consistency)
        may = partial(call.caller.may, Verb.READ)
        names = await call.steps.matching(queue.schedule_names(), PatternSet((ALL_TUBES,)), may)
        queue = self._reader.applied
        page, next_token = page_of(
            names,
            lambda name: name,
            request.page_size or PAGE_SIZE_MAX,
            request.page_token,
            list_fingerprint("schedules"),
            bytes_of=lambda name: _content_bytes(queue.schedule(name)),
        )
        views = [view for name in page if (view := queue.schedule(name)) is not None]
        schedules = await call.steps.in_slices(
            views, lambda view: self._shown(view, call.caller), MESSAGE_STEPS
        )
        return pb.ListSchedulesResponse(schedules=schedules, next_page_token=next_token)

    def _shown(self, view: ScheduleView, caller: Caller) -> pb.Schedule:
        """Return a schedule with the reason why this leader cannot run the schedule, if any."""
        message = _visible_schedule(view, caller)
        problem = self._problems().get(view.name)
        if problem is not None:
            message.last_error.CopyFrom(_problem_message(problem))
        return message


def _content_bytes(view: ScheduleView | None) -> int:
    """Return the size of the task that a schedule puts."""
    return 0 if view is None else len(view.options.spec)


def _times(schedule: pb.Schedule, after_ms: int, times_max: int) -> Sequence[int]:
    """Return the first times of a schedule after an instant."""
    if not times_max:
        return ()
    until_ms = after_ms + TIMES_WITHIN_MS
    times = islice(cron(schedule.cron, schedule.time_zone).times(after_ms), times_max)
    return tuple(takewhile(lambda at_ms: at_ms <= until_ms, times))


def _problem_message(problem: CronMalformed) -> error_pb2.Error:
    """Return the error of a schedule whose stored expression or time zone is unusable."""
    return error_pb2.Error(
        reason=error_pb2.Error.INVALID_FIELD,
        message=f"this node cannot compute the times: {problem}",
        metadata={"field": problem.field},
    )


def _visible_schedule(view: ScheduleView, caller: Caller) -> pb.Schedule:
    """Return a schedule as a message, without its task if the caller may not read the tube."""
    message = schedule_message(view)
    if not caller.may(Verb.READ, message.tube):
        message.ClearField("spec")
    return message


def schedule_message(view: ScheduleView) -> pb.Schedule:
    """Return a schedule as a message: the client's definition with the server's state."""
    message = pb.Schedule.FromString(view.options.body)
    message.spec.MergeFromString(view.options.spec)
    message.next_ms = 0 if view.options.paused else view.next_ms
    message.last_ms = view.last_ms
    message.last_task_id = view.last_task_id
    message.left_out = view.left_out
    message.etag = view.options.etag
    message.owner = view.owner
    if view.refusal is not None:
        message.last_error.CopyFrom(error_message(view.refusal))
    return message


def _check_mask(request: pb.UpdateScheduleRequest) -> None:
    """Check the mask of an update: known fields of the definition, and all fields with a value.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_name("schedule.name", request.schedule.name)
    paths = request.update_mask.paths
    for place, path in enumerate(paths):
        if path not in _CHANGEABLE:
            text = f"there is no field {path[:64]!r} that can be changed"
            violations.add(f"update_mask.paths[{place}]", text)
    for field, _ in request.schedule.ListFields():
        if field.name in _CHANGEABLE and field.name not in paths:
            violations.add(f"schedule.{field.name}", "set, but not in update_mask")
    violations.raise_if_any()


def _check_schedule(
    request: pb.CreateScheduleRequest | pb.UpdateScheduleRequest,
) -> Violations:
    """Return the violations of a schedule, including its cron expression and time zone."""
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    if isinstance(request, pb.UpdateScheduleRequest):
        violations.check_text("etag", request.etag, limits.NAME_BYTES_MAX)
    schedule = request.schedule
    violations.check_name("schedule.name", schedule.name)
    violations.check_tube("schedule.tube", schedule.tube)
    violations.check_range("schedule.jitter_ms", schedule.jitter_ms, 0, limits.JITTER_MAX_MS)
    for field, known in _CHOICES.items():
        violations.check_choice(f"schedule.{field}", getattr(schedule, field), known)
    for expression, time_zone in ((schedule.cron, ""), (_EVERY_MINUTE, schedule.time_zone)):
        try:
            cron(expression, time_zone)
        except CronMalformed as error:
            position = {"position": str(error.position)}
            violations.add(f"schedule.{error.field}", str(error), position)
    check_stored_spec(violations, "schedule.spec", schedule.spec)
    return violations
