"""Decode the commands on schedules; the leader has added the computed times."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import schedule_service_pb2 as pb
from taskraft.v1 import task_pb2
from taskraft_service import wire
from taskraft_service.command_codecs.command_codec import V1, CommandCodec
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.queue.operations.schedules import (
    CreateSchedule,
    DeleteSchedule,
    RunSchedule,
    UpdateSchedule,
)
from taskraft_service.queue.state.schedule_registry import Overlap, ScheduledTime, ScheduleSpec
from taskraft_service.stubs.log.v1 import log_pb2

_SET_BY_SERVER: Final = (
    "next_ms",
    "last_ms",
    "last_task_id",
    "left_out",
    "last_error",
    "etag",
    "owner",
)
"""Fields of a schedule that the server sets; their values in a request are ignored."""
SLOT_HEADER: Final = "taskraft-slot-ms"
"""Header with the scheduled time of a task, in ms as decimal digits."""

_SPEC: Final = pb.Schedule.SPEC_FIELD_NUMBER
_HEADERS: Final = task_pb2.TaskSpec.HEADERS_FIELD_NUMBER
_OVERLAPS: Final = {
    pb.Schedule.OVERLAP_UNSPECIFIED: Overlap.ALLOW,
    pb.Schedule.ALLOW: Overlap.ALLOW,
    pb.Schedule.SKIP_OVERLAP: Overlap.SKIP,
    pb.Schedule.CANCEL_BEFORE: Overlap.CANCEL_BEFORE,
}


def schedule_options(schedule: pb.Schedule) -> ScheduleSpec:
    """Return the definition of a schedule; the times stay text."""
    shown = pb.Schedule()
    shown.CopyFrom(schedule)
    for field in ("spec", *_SET_BY_SERVER):
        shown.ClearField(field)
    return ScheduleSpec(
        tube=schedule.tube,
        pattern=f"{schedule.cron}\n{schedule.time_zone}",
        overlap=_OVERLAPS[schedule.overlap],
        paused=schedule.paused,
        spec=schedule.spec.SerializeToString(deterministic=True),
        body=shown.SerializeToString(deterministic=True),
    )


def slot_mark(at_ms: int) -> bytes:
    """Return the bytes that add the header with the scheduled time when appended to a TaskSpec.

    In protobuf's wire format, appending a map entry sets the entry.
    """
    entry = wire.length_delimited(1, SLOT_HEADER.encode()) + wire.length_delimited(
        2, str(at_ms).encode()
    )
    return wire.length_delimited(_HEADERS, entry)


def _create(message: log_pb2.CreateSchedule, _raw: bytes, key: RequestKey) -> CreateSchedule:
    request = message.request
    options = schedule_options(request.schedule)
    name, request_id = request.schedule.name, key.scope + request.request_id
    return CreateSchedule(name, options, message.next_ms, request_id, key.hash, key.owner)


def _update(message: log_pb2.UpdateSchedule, _raw: bytes, key: RequestKey) -> UpdateSchedule:
    request = message.request
    options = schedule_options(request.schedule)
    name, request_id = request.schedule.name, key.scope + request.request_id
    return UpdateSchedule(
        name, options, message.next_ms, request.etag, request_id, key.hash, key.owner
    )


def _delete(request: pb.DeleteScheduleRequest, _raw: bytes, key: RequestKey) -> DeleteSchedule:
    request_id = key.scope + request.request_id
    return DeleteSchedule(request.name, request.etag, request_id, key.hash, key.owner)


def _run(message: log_pb2.RunSchedule, _raw: bytes, _key: RequestKey) -> RunSchedule:
    slots = [ScheduledTime(at_ms, slot_mark(at_ms)) for at_ms in message.slots_ms]
    return RunSchedule(message.name, message.version, slots, message.until_ms, message.next_ms)


CREATE_SCHEDULE: Final = CommandCodec("create_schedule", log_pb2.CreateSchedule, _create, V1)
UPDATE_SCHEDULE: Final = CommandCodec("update_schedule", log_pb2.UpdateSchedule, _update, V1)
DELETE_SCHEDULE: Final = CommandCodec("delete_schedule", pb.DeleteScheduleRequest, _delete, V1)
RUN_SCHEDULE: Final = CommandCodec("run_schedule", log_pb2.RunSchedule, _run, V1)
