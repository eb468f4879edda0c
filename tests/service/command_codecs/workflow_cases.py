"""Requests about groups and schedules, each with the command that its codec decodes."""

from taskraft.v1 import group_service_pb2, schedule_service_pb2, task_pb2
from taskraft_service.command_codecs.groups import (
    CANCEL_GROUP,
    CREATE_GROUP,
    SET_END_TASK,
    START_GROUP,
)
from taskraft_service.command_codecs.schedules import (
    CREATE_SCHEDULE,
    DELETE_SCHEDULE,
    RUN_SCHEDULE,
    UPDATE_SCHEDULE,
)
from taskraft_service.queue.entities.group import GroupTask
from taskraft_service.queue.operations.groups import (
    CancelGroup,
    CreateGroup,
    SetEndTask,
    StartGroup,
)
from taskraft_service.queue.operations.schedules import (
    CreateSchedule,
    DeleteSchedule,
    RunSchedule,
    UpdateSchedule,
)
from taskraft_service.queue.state.schedule_registry import ScheduledTime
from taskraft_service.stubs.log.v1 import log_pb2
from tests.service.command_codecs.examples import FOLLOWER, GROUP_TASK, HASH, OPTIONS, SCHEDULE

WORKFLOW_CASES = {
    "a group": (
        CREATE_GROUP,
        group_service_pb2.CreateGroupRequest(
            request_id="r",
            group={
                "name": "g", "end_task": GROUP_TASK, "abort_task": {"tube": "aborts"},
                "only_if_processed": True, "open": 5, "state": 3,
            },
        ),
        CreateGroup("g", FOLLOWER, GroupTask("aborts", b""), True, "r", HASH),
    ),
    "a group that nothing follows": (
        CREATE_GROUP,
        group_service_pb2.CreateGroupRequest(group={"name": "g"}),
        CreateGroup("g", request_hash=HASH),
    ),
    "another end of a group": (
        SET_END_TASK,
        group_service_pb2.SetEndTaskRequest(
            request_id="r", name="g", end_task=GROUP_TASK, abort_task={"tube": "aborts"},
            only_if_processed=True,
        ),
        SetEndTask("g", FOLLOWER, GroupTask("aborts", b""), True, "r", HASH),
    ),
    "no end of a group": (
        SET_END_TASK,
        group_service_pb2.SetEndTaskRequest(name="g"),
        SetEndTask("g", request_hash=HASH),
    ),
    "start a group": (
        START_GROUP,
        group_service_pb2.StartGroupRequest(request_id="r", name="g"),
        StartGroup("g", "r", HASH),
    ),
    "cancel a group": (
        CANCEL_GROUP,
        group_service_pb2.CancelGroupRequest(request_id="r", name="g", revoke=True),
        CancelGroup("g", True, "r", HASH),
    ),
    "a schedule": (
        CREATE_SCHEDULE,
        log_pb2.CreateSchedule(request={"request_id": "r", "schedule": SCHEDULE}, next_ms=9),
        CreateSchedule("s", OPTIONS, 9, "r", HASH),
    ),
    "another schedule in its place": (
        UPDATE_SCHEDULE,
        log_pb2.UpdateSchedule(
            request={"request_id": "r", "schedule": SCHEDULE, "etag": "e"}, next_ms=9
        ),
        UpdateSchedule("s", OPTIONS, 9, "e", "r", HASH),
    ),
    "no schedule": (
        DELETE_SCHEDULE,
        schedule_service_pb2.DeleteScheduleRequest(request_id="r", name="s", etag="e"),
        DeleteSchedule("s", "e", "r", HASH),
    ),
    "the times of a schedule": (
        RUN_SCHEDULE,
        log_pb2.RunSchedule(name="s", version=2, slots_ms=[60], until_ms=70, next_ms=120),
        RunSchedule(
            "s",
            2,
            [ScheduledTime(60, task_pb2.TaskSpec(headers={"taskraft-slot-ms": b"60"})
                       .SerializeToString())],
            70,
            120,
        ),
    ),
}  # fmt: skip
