"""List the most expensive request of each method of the contract, by the name of the method.

Each list has its maximum length, each text its maximum size, and the request finds all objects that
it names. What a request needs, such as leases, is prepared before the request is measured. A test
compares the table with the contract, so a new method needs a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from bench.worst.stage import FILLED, LEASE_MS, Stage
from taskraft.v1 import bulk_sweep_pb2 as sweep_pb
from taskraft.v1 import cluster_service_pb2 as cluster_pb
from taskraft.v1 import feed_service_pb2 as feed_pb
from taskraft.v1 import group_service_pb2 as group_pb
from taskraft.v1 import schedule_service_pb2 as schedule_pb
from taskraft.v1 import session_service_pb2 as session_pb
from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as task_pb
from taskraft.v1 import tube_service_pb2 as tube_pb
from taskraft_service import limits
from taskraft_service.stubs.externalscaler import external_scaler_pb2 as scaler_pb

WorstRequest: TypeAlias = Callable[[Stage], Awaitable[Message]]
"""Prepares the node for the most expensive request of a method, and returns this request."""

FILTER: Final = " OR ".join(f'type = "*a*b*c{number}"' for number in range(64))
"""A filter with many comparisons, which matches no task. Each comparison reads the whole type of
the tasks of ``FILLED``."""
PATTERN_STEPS: Final = 6
"""Upper limit of the steps for one name and one pattern of ``_patterns``."""
HEADERS: Final = {f"header{number}": b"x" * 64 for number in range(32)}
FAILURE: Final = task_pb2.Failure(type="x" * 200, message="x" * 4_000)
LINEARIZABLE: Final = task_pb2.Consistency(level=task_pb2.Consistency.LINEARIZABLE)
MEMBER: Final = "x" * 128
"""Name of a member that never runs."""
MANY: Final = 10_000
"""Number of tasks, leases or group members that one request ends, starts or lists."""


def _always(message: Message) -> WorstRequest:
    """Return a request that needs no preparation."""

    async def request(_stage: Stage) -> Message:
        return message

    return request


def _patterns(names: int, most: int) -> list[str]:
    """Return patterns without a fixed beginning or end, which match none of the names.

    The node compares each name with each piece of each pattern, so the number of patterns is
    limited by the steps of one request.
    """
    number = min(most, limits.REQUEST_STEPS_MAX // (names * PATTERN_STEPS) - 2)
    return [f"*t*e*.*{place}x*" for place in range(number)]


def _ids(ids: list[int]) -> task_pb2.TaskSelector:
    return task_pb2.TaskSelector(ids=ids)


# ---------------------------------------------------------------------------------- tasks


async def _graph(stage: Stage) -> Message:
    """Return a request for a task on which others depend."""
    tube, (first,) = await stage.tube_of(1)
    on = task_pb2.Dependency(task=task_pb2.TaskReference(tube=tube, id=first))
    await stage.put(tube, MANY, depends_on=[on])
    return task_pb.GetTaskGraphRequest(tube=tube, id=first)


async def _put(stage: Stage) -> Message:
    tube, _ = await stage.tube_of(0)
    group = await stage.group_of(0)
    specs = [
        task_pb2.TaskSpec(
            payload=b"x" * 500,
            headers=HEADERS,
            unique_key=["key", str(number)],
            type="kind",
            group=group,
            ttl_ms=LEASE_MS,
            delay_ms=LEASE_MS,
        )
        for number in range(limits.PUT_TASKS_MAX)
    ]
    return task_pb.PutTasksRequest(tube=tube, tasks=specs, request_id=stage.new_name())


async def _take(stage: Stage) -> Message:
    tube, _ = await stage.tube_of(limits.TAKE_TASKS_MAX)
    patterns = _patterns(2 * stage.size.tubes, limits.TAKE_SOURCES_MAX - 1)
    sources = [task_pb.TakeSource(tube=name) for name in (*patterns, tube)]
    return task_pb.TakeTasksRequest(
        sources=sources, tasks_max=limits.TAKE_TASKS_MAX, ttr_ms=LEASE_MS, wait_ms=0
    )


async def _settle(stage: Stage) -> Message:
    _, tokens = await stage.taken(limits.BATCH_ITEMS_MAX)
    release = task_pb.Settlement.Release(delay_ms=LEASE_MS, failure=FAILURE)
    settlement = task_pb.Settlement(tokens=tokens, release=release)
    return task_pb.SettleTasksRequest(settlements=[settlement], request_id=stage.new_name())


async def _subscribe(_stage: Stage) -> Message:
    sources = [task_pb.TakeSource(tube=f"*{number}*") for number in range(limits.TAKE_SOURCES_MAX)]
    opening = task_pb.SubscribeRequest.Open(
        sources=sources, types=[f"t{number}" for number in range(limits.TAKE_TYPES_MAX)]
    )
    credit = task_pb.SubscribeRequest.Credit(tasks=limits.CREDIT_TASKS_MAX)
    return task_pb.SubscribeRequest(open=opening, credit=credit)


async def _get_tasks(stage: Stage) -> Message:
    tube, ids = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    return task_pb.GetTasksRequest(tube=tube, selector=_ids(ids), consistency=LINEARIZABLE)


async def _kick(stage: Stage) -> Message:
    tube, _ = await stage.buried(limits.BATCH_ITEMS_MAX)
    return task_pb.KickTasksRequest(tube=tube, count=limits.BATCH_ITEMS_MAX)


async def _bury(stage: Stage) -> Message:
    tube, ids = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    return task_pb.BuryTasksRequest(tube=tube, selector=_ids(ids), failure=FAILURE)


async def _delete(stage: Stage) -> Message:
    tube, ids = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    return task_pb.DeleteTasksRequest(tube=tube, selector=_ids(ids))


async def _update(stage: Stage) -> Message:
    tube, ids = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    update = task_pb2.TaskUpdate(payload=b"x" * 500, headers_set=HEADERS, priority=7)
    return task_pb.UpdateTasksRequest(tube=tube, selector=_ids(ids), update=update)


async def _snatch(stage: Stage) -> Message:
    tube, ids = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    take = task_pb.TakeTasksRequest(
        sources=[task_pb.TakeSource(tube=tube)],
        tasks_max=limits.TAKE_TASKS_MAX,
        ttr_ms=LEASE_MS,
    )
    await stage.tasks.TakeTasks(take)
    return task_pb.SnatchTasksRequest(tube=tube, selector=_ids(ids))


async def _restart(stage: Stage) -> Message:
    tube, ids = await stage.buried(limits.SELECTOR_IDS_MAX)
    return task_pb.RestartTasksRequest(tube=tube, selector=_ids(ids))


async def _switch(stage: Stage) -> Message:
    tube, ids = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    return task_pb.SwitchTasksRequest(tube=tube, selector=_ids(ids), state=task_pb2.Task.BURIED)


async def _move(stage: Stage) -> Message:
    tube, ids = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    target, _ = await stage.tube_of(0)
    return task_pb.MoveTasksRequest(tube=tube, selector=_ids(ids), move_to=target)


async def _cancel(stage: Stage) -> Message:
    tube, ids = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    return task_pb.CancelTasksRequest(tube=tube, selector=_ids(ids))


async def _wait(stage: Stage) -> Message:
    tube, ids = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    return task_pb.WaitTasksRequest(tube=tube, selector=_ids(ids), wait_ms=1)


async def _batch(stage: Stage) -> Message:
    tube, ids = await stage.tube_of(limits.BATCH_ITEMS_MAX)
    target, _ = await stage.tube_of(0)
    moves = [
        task_pb.BatchOperation(
            move=task_pb.MoveTasksRequest(tube=tube, selector=_ids([*ids[n::100]]), move_to=target)
        )
        for n in range(100)
    ]
    return task_pb.ExecuteBatchRequest(operations=moves, request_id=stage.new_name())


async def _sweep(stage: Stage) -> Message:
    tube, ids = await stage.tube_of(MANY)
    return sweep_pb.StartBulkSweepRequest(
        tube=tube, ids=ids, action=sweep_pb.StartBulkSweepRequest.DELETE
    )


async def _started_sweep(stage: Stage) -> int:
    request = sweep_pb.StartBulkSweepRequest(
        tube=FILLED,
        filter='type = "nothing"',
        action=sweep_pb.StartBulkSweepRequest.KICK,
        rate_per_second=1,
    )
    return (await stage.tasks.StartBulkSweep(request)).sweep.number


async def _get_sweep(stage: Stage) -> Message:
    return sweep_pb.GetBulkSweepRequest(number=await _started_sweep(stage))


async def _stop_sweep(stage: Stage) -> Message:
    return sweep_pb.StopBulkSweepRequest(number=await _started_sweep(stage))


# ---------------------------------------------------------------------------------- tubes


async def _create_tube(stage: Stage) -> Message:
    tube = tube_pb.Tube(name=stage.new_name(), kind=tube_pb.Tube.FIFOTTL)
    return tube_pb.CreateTubeRequest(tube=tube, request_id=stage.new_name())


async def _update_tube(stage: Stage) -> Message:
    tube, _ = await stage.tube_of(MANY)
    return tube_pb.UpdateTubeRequest(
        name=tube,
        options=tube_pb.TubeOptions(capacity_tasks=1),
        update_mask=FieldMask(paths=["capacity_tasks"]),
    )


async def _drop_tube(stage: Stage) -> Message:
    tube, _ = await stage.tube_of(MANY)
    return tube_pb.DropTubeRequest(name=tube, force=True)


async def _truncate(stage: Stage) -> Message:
    tube, _ = await stage.tube_of(MANY)
    return tube_pb.TruncateTubeRequest(name=tube)


async def _list_tubes(stage: Stage) -> Message:
    names = _patterns(2 * stage.size.tubes, limits.NAMES_MAX)
    return tube_pb.ListTubesRequest(names=names, page_size=limits.PAGE_SIZE_MAX)


async def _statistics(stage: Stage) -> Message:
    tubes = [*_patterns(2 * stage.size.tubes, limits.NAMES_MAX - 1), "*"]
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
    return group_pb.CreateGroupRequest(group=group_pb.Group(name=stage.new_name()))


async def _start_group(stage: Stage) -> Message:
    name = stage.new_name()
    held = group_pb.Group(name=name, state=group_pb.Group.HELD)
    await stage.groups.CreateGroup(group_pb.CreateGroupRequest(group=held))
    await stage.tube_of(MANY, group=name)
    return group_pb.StartGroupRequest(name=name)


async def _list_groups(stage: Stage) -> Message:
    names = _patterns(2 * stage.size.groups, limits.NAMES_MAX)
    return group_pb.ListGroupsRequest(names=names, page_size=limits.PAGE_SIZE_MAX)


async def _cancel_group(stage: Stage) -> Message:
    return group_pb.CancelGroupRequest(name=await stage.group_of(MANY), revoke=True)


async def _end_task(stage: Stage) -> Message:
    task = group_pb.GroupTask(tube=FILLED, spec=task_pb2.TaskSpec(payload=b"x" * 60_000))
    return group_pb.SetEndTaskRequest(name=await stage.group_of(1), end_task=task)


async def _get_group(stage: Stage) -> Message:
    return group_pb.GetGroupRequest(name=await stage.group_of(MANY))


def _schedule(name: str) -> schedule_pb.Schedule:
    spec = task_pb2.TaskSpec(payload=b"x" * 60_000)
    return schedule_pb.Schedule(
        name=name, cron="59 23 29 2 *", time_zone="Europe/Vienna", tube=FILLED, spec=spec
    )


async def _create_schedule(stage: Stage) -> schedule_pb.CreateScheduleRequest:
    return schedule_pb.CreateScheduleRequest(schedule=_schedule(stage.new_name()))


async def _existing_schedule(stage: Stage) -> str:
    request = await _create_schedule(stage)
    await stage.schedules.CreateSchedule(request)
    return request.schedule.name


async def _update_schedule(stage: Stage) -> Message:
    schedule = _schedule(await _existing_schedule(stage))
    return schedule_pb.UpdateScheduleRequest(schedule=schedule)


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
    selector = _ids([task_id])
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
    "PutTasks": _put,
    "TakeTasks": _take,
    "SettleTasks": _settle,
    "Subscribe": _subscribe,
    "GetTasks": _get_tasks,
    "GetTaskGraph": _graph,
    "CountTasks": _always(task_pb.CountTasksRequest(tube=FILLED, filter=FILTER)),
    "ListTasks": _always(
        task_pb.ListTasksRequest(tube=FILLED, filter=FILTER, page_size=limits.PAGE_SIZE_MAX)
    ),
    "KickTasks": _kick,
    "BuryTasks": _bury,
    "DeleteTasks": _delete,
    "UpdateTasks": _update,
    "SnatchTasks": _snatch,
    "RestartTasks": _restart,
    "SwitchTasks": _switch,
    "MoveTasks": _move,
    "CancelTasks": _cancel,
    "WaitTasks": _wait,
    "ExecuteBatch": _batch,
    "StartBulkSweep": _sweep,
    "GetBulkSweep": _get_sweep,
    "ListBulkSweeps": _always(
        sweep_pb.ListBulkSweepsRequest(page_size=limits.PAGE_SIZE_MAX, consistency=LINEARIZABLE)
    ),
    "StopBulkSweep": _stop_sweep,
    "CreateTube": _create_tube,
    "UpdateTube": _update_tube,
    "DropTube": _drop_tube,
    "TruncateTube": _truncate,
    "ReleaseAll": _release_all,
    "ListTubes": _list_tubes,
    "GetStatistics": _statistics,
    "GetHistory": _always(
        tube_pb.GetHistoryRequest(
            tubes=[f"tube.{number:05}" for number in range(100)], total=True, samples_max=720
        )
    ),
    "ListFailures": _always(tube_pb.ListFailuresRequest(page_size=limits.PAGE_SIZE_MAX)),
    "ListConsumers": _always(
        tube_pb.ListConsumersRequest(tube=FILLED, page_size=limits.PAGE_SIZE_MAX)
    ),
    "OpenSession": _always(session_pb.OpenSessionRequest(name="x" * 128, ttr_ms=LEASE_MS)),
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
    "IsActive": _always(scaler_pb.ScaledObjectRef(scalerMetadata={"tube": FILLED, "target": "1"})),
    "StreamIsActive": _always(
        scaler_pb.ScaledObjectRef(scalerMetadata={"tube": FILLED, "target": "1"})
    ),
    "GetMetricSpec": _always(
        scaler_pb.ScaledObjectRef(scalerMetadata={"tube": FILLED, "target": "1"})
    ),
    "GetMetrics": _always(
        scaler_pb.GetMetricsRequest(
            scaledObjectRef=scaler_pb.ScaledObjectRef(
                scalerMetadata={"tube": FILLED, "target": "1"}
            )
        )
    ),
}
