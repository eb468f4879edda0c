"""List the most expensive request of each method of the contract, by the name of the method.

Each list has its maximum length, each text its maximum size, and the request finds all objects that
it names. What a request needs, such as leases, is prepared before the request is measured. A test
compares the table with the contract, so a new method needs a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from bench.worst.full_lists import (
    LABELS,
    LINEARIZABLE,
    WEIGHTS,
    ids,
    patterns,
    stored_spec,
    with_tubes,
)
from bench.worst.stage import FILLED, LEASE_MS, MANY, Stage, WorstRequest
from bench.worst.task_requests import TASK_REQUESTS
from taskraft.v1 import bulk_sweep_pb2 as sweep_pb
from taskraft.v1 import cluster_service_pb2 as cluster_pb
from taskraft.v1 import error_pb2
from taskraft.v1 import feed_service_pb2 as feed_pb
from taskraft.v1 import group_service_pb2 as group_pb
from taskraft.v1 import schedule_service_pb2 as schedule_pb
from taskraft.v1 import session_service_pb2 as session_pb
from taskraft.v1 import task_service_pb2 as task_pb
from taskraft.v1 import tube_service_pb2 as tube_pb
from taskraft_service import limits
from taskraft_service.machine import failure_counts, tube_sampler
from taskraft_service.stubs.externalscaler import external_scaler_pb2 as scaler_pb

FILTER: Final = " OR ".join(f'type = "*a*b*c{number}"' for number in range(64))
"""A filter with many comparisons, which matches no task. Each comparison reads the whole type of
the tasks of ``FILLED``."""
ERROR: Final = error_pb2.Error(
    metadata={f"name{number}": "x" for number in range(limits.NAMES_MAX)}
)
"""An error in a request. It has no effect, because the field is only for answers."""
SCALER: Final = {"tube": FILLED, "target": "1", "activation": "1", "metric": "ready"}
COLUMNS: Final = [
    field.name
    for field in feed_pb.ChangeColumns.DESCRIPTOR.fields
    if field.name not in {"tubes", "texts"}
]
"""The arrays of a chunk that a reader can name; the other fields are the tables of the arrays."""
MEMBER: Final = "x" * 128
"""Name of a member that never runs."""


def _mask(*paths: str) -> FieldMask:
    """Return a mask with as many paths as a mask can have: some paths, repeated."""
    return FieldMask(paths=(paths * 100)[:100])


def _repeated(names: Sequence[str]) -> list[str]:
    """Return names, again and again, as many as a list can have."""
    return [*islice(cycle(names), limits.NAMES_MAX)]


def _always(message: Message) -> WorstRequest:
    """Return a request that needs no preparation."""

    async def request(_stage: Stage) -> Message:
        return message

    return request


# ---------------------------------------------------------------------------------- tubes


async def _create_tube(stage: Stage) -> Message:
    options = tube_pb.TubeOptions(subqueue_weights=WEIGHTS)
    tube = tube_pb.Tube(name=stage.new_name(), kind=tube_pb.Tube.UTUBE, options=options)
    return tube_pb.CreateTubeRequest(tube=tube, request_id=stage.new_name())


async def _update_tube(stage: Stage) -> Message:
    tube = stage.new_name()
    await stage.create_tube(tube, tube_pb.Tube.UTUBE)
    return tube_pb.UpdateTubeRequest(
        name=tube,
        options=tube_pb.TubeOptions(capacity_tasks=1, subqueue_weights=WEIGHTS),
        update_mask=_mask("capacity_tasks", "subqueue_weights"),
    )


async def _drop_tube(stage: Stage) -> Message:
    tube, _ = await stage.tube_of(MANY)
    return tube_pb.DropTubeRequest(name=tube, force=True)


async def _truncate(stage: Stage) -> Message:
    tube, _ = await stage.tube_of(MANY)
    return tube_pb.TruncateTubeRequest(name=tube)


async def _list_tubes(stage: Stage) -> Message:
    found = patterns(2 * stage.size.tubes, limits.NAMES_MAX)
    names = with_tubes(found, stage, limits.NAMES_MAX)
    return tube_pb.ListTubesRequest(names=names, page_size=limits.PAGE_SIZE_MAX)


async def _statistics(stage: Stage) -> Message:
    found = ["*", *patterns(2 * stage.size.tubes, limits.NAMES_MAX - 1)]
    tubes = with_tubes(found, stage, limits.NAMES_MAX)
    return tube_pb.GetStatisticsRequest(
        tubes=tubes, transitions=True, page_size=limits.PAGE_SIZE_MAX
    )


async def _release_all(stage: Stage) -> Message:
    tube, _ = await stage.tube_of(MANY)
    for _ in range(MANY // limits.TAKE_TASKS_MAX):
        take = task_pb.TakeTasksRequest(
            sources=[task_pb.TakeSource(tube=tube)],
            tasks_max=limits.TAKE_TASKS_MAX,
            ttr_ms=LEASE_MS,
            payload_omit=True,
        )
        await stage.tasks.TakeTasks(take)
    return tube_pb.ReleaseAllRequest(name=tube)


# ---------------------------------------------------------------------------------- the rest


async def _keep(stage: Stage) -> Message:
    ids = stage.session_ids[: limits.SESSIONS_PER_KEEP_MAX]
    return session_pb.KeepSessionsRequest(session_ids=ids)


async def _close(stage: Stage) -> Message:
    session_id, _ = await stage.taken(MANY)
    return session_pb.CloseSessionRequest(session_id=session_id)


async def _leases(stage: Stage) -> Message:
    session_id, _ = await stage.taken(MANY)
    return session_pb.ListLeasesRequest(session_id=session_id, page_size=limits.PAGE_SIZE_MAX)


async def _create_group(stage: Stage) -> Message:
    end_task = group_pb.GroupTask(tube=FILLED, spec=stored_spec(40_000))
    group = group_pb.Group(name=stage.new_name(), end_task=end_task, last_error=ERROR)
    return group_pb.CreateGroupRequest(group=group)


async def _start_group(stage: Stage) -> Message:
    name = stage.new_name()
    held = group_pb.Group(name=name, state=group_pb.Group.HELD)
    await stage.groups.CreateGroup(group_pb.CreateGroupRequest(group=held))
    await stage.tube_of(MANY, group=name)
    return group_pb.StartGroupRequest(name=name)


async def _list_groups(stage: Stage) -> Message:
    found = patterns(2 * stage.size.groups, limits.NAMES_MAX)
    names = with_tubes(found, stage, limits.NAMES_MAX)
    return group_pb.ListGroupsRequest(
        names=names,
        states=[state for state in group_pb.Group.State.values() if state],
        page_size=limits.PAGE_SIZE_MAX,
    )


async def _cancel_group(stage: Stage) -> Message:
    return group_pb.CancelGroupRequest(name=await stage.group_of(MANY), revoke=True)


async def _end_task(stage: Stage) -> Message:
    task = group_pb.GroupTask(tube=FILLED, spec=stored_spec(40_000))
    return group_pb.SetEndTaskRequest(name=await stage.group_of(1), end_task=task)


async def _get_group(stage: Stage) -> Message:
    return group_pb.GetGroupRequest(name=await stage.group_of(MANY))


def _schedule(name: str) -> schedule_pb.Schedule:
    spec = stored_spec(40_000)
    return schedule_pb.Schedule(
        name=name,
        cron="59 23 29 2 *",
        time_zone="Europe/Vienna",
        tube=FILLED,
        spec=spec,
        last_error=ERROR,
    )


async def _create_schedule(stage: Stage) -> schedule_pb.CreateScheduleRequest:
    return schedule_pb.CreateScheduleRequest(schedule=_schedule(stage.new_name()))


async def _existing_schedule(stage: Stage) -> str:
    request = await _create_schedule(stage)
    await stage.schedules.CreateSchedule(request)
    return request.schedule.name


async def _update_schedule(stage: Stage) -> Message:
    schedule = _schedule(await _existing_schedule(stage))
    mask = _mask("cron", "time_zone", "tube", "spec")
    return schedule_pb.UpdateScheduleRequest(schedule=schedule, update_mask=mask)


async def _delete_schedule(stage: Stage) -> Message:
    return schedule_pb.DeleteScheduleRequest(name=await _existing_schedule(stage))


async def _get_schedule(stage: Stage) -> Message:
    return schedule_pb.GetScheduleRequest(name=await _existing_schedule(stage), times_max=100)


async def _commit_cursor(stage: Stage) -> Message:
    return feed_pb.CommitCursorRequest(
        consumer=stage.new_name(), cursor=feed_pb.FeedCursor(next_seq={0: 1})
    )


async def _task_events(stage: Stage) -> Message:
    tube, (task_id,) = await stage.tube_of(1)
    selector = ids([task_id])
    for _ in range(100):
        await stage.tasks.BuryTasks(task_pb.BuryTasksRequest(tube=tube, selector=selector))
        await stage.tasks.KickTasks(task_pb.KickTasksRequest(tube=tube, selector=selector))
    return feed_pb.GetTaskEventsRequest(tube=tube, task_id=task_id)


async def _read_snapshot(stage: Stage) -> Message:
    opened = await stage.feed.OpenTaskSnapshot(feed_pb.OpenTaskSnapshotRequest())
    return feed_pb.ReadTaskSnapshotRequest(snapshot_id=opened.snapshot_id, tube=FILLED)


async def _configure(_stage: Stage) -> Message:
    return cluster_pb.ConfigureRequest(settings=cluster_pb.ClusterSettings(session_ttr_ms=60_000))


WORST: Final[Mapping[str, WorstRequest]] = {
    **TASK_REQUESTS,
    "CountTasks": _always(task_pb.CountTasksRequest(tube=FILLED, filter=FILTER)),
    "ListTasks": _always(
        task_pb.ListTasksRequest(tube=FILLED, filter=FILTER, page_size=limits.PAGE_SIZE_MAX)
    ),
    "ListBulkSweeps": _always(
        sweep_pb.ListBulkSweepsRequest(page_size=limits.PAGE_SIZE_MAX, consistency=LINEARIZABLE)
    ),
    "CreateTube": _create_tube,
    "UpdateTube": _update_tube,
    "DropTube": _drop_tube,
    "TruncateTube": _truncate,
    "ReleaseAll": _release_all,
    "ListTubes": _list_tubes,
    "GetStatistics": _statistics,
    "GetHistory": _always(
        tube_pb.GetHistoryRequest(
            tubes=[f"tube.{number:05}" for number in range(tube_sampler.TUBES_MAX)],
            total=True,
            samples_max=720,
        )
    ),
    "ListFailures": _always(
        tube_pb.ListFailuresRequest(
            tubes=[f"tube.{number:05}" for number in range(failure_counts.TUBES_MAX)],
            page_size=limits.PAGE_SIZE_MAX,
        )
    ),
    "ListConsumers": _always(
        tube_pb.ListConsumersRequest(tube=FILLED, page_size=limits.PAGE_SIZE_MAX)
    ),
    "OpenSession": _always(
        session_pb.OpenSessionRequest(name="x" * 128, ttr_ms=LEASE_MS, labels=LABELS)
    ),
    "KeepSessions": _keep,
    "CloseSession": _close,
    "ListSessions": _always(session_pb.ListSessionsRequest(page_size=limits.PAGE_SIZE_MAX)),
    "ListLeases": _leases,
    "CreateGroup": _create_group,
    "StartGroup": _start_group,
    "CancelGroup": _cancel_group,
    "SetEndTask": _end_task,
    "GetGroup": _get_group,
    "ListGroups": _list_groups,
    "CreateSchedule": _create_schedule,
    "UpdateSchedule": _update_schedule,
    "DeleteSchedule": _delete_schedule,
    "GetSchedule": _get_schedule,
    "ListSchedules": _always(schedule_pb.ListSchedulesRequest(page_size=limits.PAGE_SIZE_MAX)),
    "DescribeFeed": _always(feed_pb.DescribeFeedRequest()),
    "WatchFeed": _always(feed_pb.WatchFeedRequest(wait_ms=1)),
    "ReadChanges": _always(
        feed_pb.ReadChangesRequest(
            tubes=[f"tube.{number:05}" for number in range(limits.NAMES_MAX)],
            encoding=feed_pb.ReadChangesRequest.COLUMNS,
            columns=_repeated(COLUMNS),
            kinds=[feed_pb.ChangeEvent.PUT] * limits.NAMES_MAX,
            to_seq=100_000,
            chunk_bytes_max=limits.CHUNK_BYTES_MAX,
        )
    ),
    "ResolveTimestamp": _always(feed_pb.ResolveTimestampRequest(at_ms=1)),
    "CommitCursor": _commit_cursor,
    "GetTaskEvents": _task_events,
    "OpenTaskSnapshot": _always(feed_pb.OpenTaskSnapshotRequest()),
    "ReadTaskSnapshot": _read_snapshot,
    "GetServerInfo": _always(cluster_pb.GetServerInfoRequest()),
    "GetClusterState": _always(cluster_pb.GetClusterStateRequest()),
    "AddMember": _always(
        cluster_pb.AddMemberRequest(name=MEMBER, peer_address="127.0.0.1:1", address="127.0.0.1:2")
    ),
    "PromoteMember": _always(cluster_pb.PromoteMemberRequest(name=MEMBER)),
    "RemoveMember": _always(cluster_pb.RemoveMemberRequest(name=MEMBER)),
    "TransferLeadership": _always(cluster_pb.TransferLeadershipRequest(name=MEMBER)),
    "Configure": _configure,
    "UpgradeCluster": _always(cluster_pb.UpgradeClusterRequest()),
    "GetCaller": _always(cluster_pb.GetCallerRequest()),
    "ListAudit": _always(
        cluster_pb.ListAuditRequest(name="x" * 128, page_size=limits.PAGE_SIZE_MAX)
    ),
    "SaveSnapshot": _always(cluster_pb.SaveSnapshotRequest()),
    "IsActive": _always(scaler_pb.ScaledObjectRef(scalerMetadata=SCALER)),
    "StreamIsActive": _always(scaler_pb.ScaledObjectRef(scalerMetadata=SCALER)),
    "GetMetricSpec": _always(scaler_pb.ScaledObjectRef(scalerMetadata=SCALER)),
    "GetMetrics": _always(
        scaler_pb.GetMetricsRequest(
            scaledObjectRef=scaler_pb.ScaledObjectRef(scalerMetadata=SCALER)
        )
    ),
}
