"""Prepare the most expensive requests for tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.protobuf.message import Message

from bench.worst.full_lists import (
    FAILURE,
    LABELS,
    LINEARIZABLE,
    TYPES,
    UPDATE,
    full_specs,
    ids,
    keys,
    patterns,
    with_tubes,
)
from bench.worst.stage import FILLED, LEASE_MS, MANY, Stage, WorstRequest
from taskraft.v1 import bulk_sweep_pb2 as sweep_pb
from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as task_pb
from taskraft_service import limits

CHANGES: Final = limits.UPDATE_HEADERS_MAX // limits.HEADERS_MAX
"""Number of changes of one request that set and remove as many headers as one change may."""


async def _graph(stage: Stage) -> Message:
    """Return a request for a task on which others depend."""
    tube, (first,) = await stage.tube_of(1)
    on = task_pb2.Dependency(task=task_pb2.TaskReference(tube=tube, id=first))
    await stage.put(tube, MANY, depends_on=[on])
    return task_pb.GetTaskGraphRequest(tube=tube, id=first)


async def _put(stage: Stage) -> Message:
    tube, _ = await stage.tube_of(0)
    specs = await full_specs(stage, limits.PUT_TASKS_MAX)
    group = await stage.group_of(0)
    for spec in specs:
        spec.group, spec.delay_ms = group, LEASE_MS
    return task_pb.PutTasksRequest(tube=tube, tasks=specs, request_id=stage.new_name())


async def _take(stage: Stage) -> Message:
    tube, _ = await stage.tube_of(limits.TAKE_TASKS_MAX, type=TYPES[-1])
    found = [tube, *patterns(2 * stage.size.tubes, limits.TAKE_SOURCES_MAX - 1)]
    names = with_tubes(found, stage, limits.TAKE_SOURCES_MAX)
    return task_pb.TakeTasksRequest(
        sources=[task_pb.TakeSource(tube=name) for name in names],
        tasks_max=limits.TAKE_TASKS_MAX,
        types=TYPES,
        ttr_ms=LEASE_MS,
        wait_ms=0,
    )


def _settlements(tokens: list[int]) -> list[task_pb.Settlement]:
    """Return one settlement for each lease; some change as many headers as a request may."""
    release = task_pb.Settlement.Release(delay_ms=LEASE_MS, failure=FAILURE)
    changing = task_pb.Settlement.Release(delay_ms=LEASE_MS, failure=FAILURE, update=UPDATE)
    return [
        task_pb.Settlement(tokens=[token], release=changing if place < CHANGES else release)
        for place, token in enumerate(tokens)
    ]


async def _settle(stage: Stage) -> Message:
    _, tokens = await stage.taken(limits.BATCH_ITEMS_MAX)
    return task_pb.SettleTasksRequest(settlements=_settlements(tokens), request_id=stage.new_name())


async def _subscribe(stage: Stage) -> Message:
    _, tokens = await stage.taken(limits.PUT_TASKS_MAX)
    sources = [task_pb.TakeSource(tube=f"*{number}*") for number in range(limits.TAKE_SOURCES_MAX)]
    opening = task_pb.SubscribeRequest.Open(sources=sources, types=TYPES, session_labels=LABELS)
    return task_pb.SubscribeRequest(
        open=opening,
        credit=task_pb.SubscribeRequest.Credit(tasks=limits.CREDIT_TASKS_MAX),
        settlements=_settlements(tokens),
        filter=task_pb.SubscribeRequest.Filter(types=TYPES),
    )


async def _get_tasks(stage: Stage) -> Message:
    tube = await stage.keyed_tube(limits.SELECTOR_IDS_MAX)
    selector = keys(limits.SELECTOR_IDS_MAX)
    return task_pb.GetTasksRequest(tube=tube, selector=selector, consistency=LINEARIZABLE)


async def _kick(stage: Stage) -> Message:
    tube, found = await stage.buried(limits.SELECTOR_IDS_MAX)
    return task_pb.KickTasksRequest(
        tube=tube, selector=ids(found), delay_ms=LEASE_MS, update=UPDATE
    )


async def _bury(stage: Stage) -> Message:
    tube, found = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    return task_pb.BuryTasksRequest(tube=tube, selector=ids(found), failure=FAILURE)


async def _delete(stage: Stage) -> Message:
    tube = await stage.keyed_tube(limits.SELECTOR_IDS_MAX)
    return task_pb.DeleteTasksRequest(tube=tube, selector=keys(limits.SELECTOR_IDS_MAX))


async def _update(stage: Stage) -> Message:
    tube, found = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    update = task_pb2.TaskUpdate(payload=b"x" * 500, priority=7)
    update.MergeFrom(UPDATE)
    return task_pb.UpdateTasksRequest(tube=tube, selector=ids(found), update=update)


async def _snatch(stage: Stage) -> Message:
    tube, found = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    take = task_pb.TakeTasksRequest(
        sources=[task_pb.TakeSource(tube=tube)],
        tasks_max=limits.TAKE_TASKS_MAX,
        ttr_ms=LEASE_MS,
    )
    await stage.tasks.TakeTasks(take)
    return task_pb.SnatchTasksRequest(tube=tube, selector=ids(found))


async def _restart(stage: Stage) -> Message:
    tube, found = await stage.buried(limits.SELECTOR_IDS_MAX)
    return task_pb.RestartTasksRequest(tube=tube, selector=ids(found))


async def _switch(stage: Stage) -> Message:
    tube, found = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    return task_pb.SwitchTasksRequest(tube=tube, selector=ids(found), state=task_pb2.Task.BURIED)


async def _move(stage: Stage) -> Message:
    tube, found = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    target, _ = await stage.tube_of(0)
    return task_pb.MoveTasksRequest(tube=tube, selector=ids(found), move_to=target, update=UPDATE)


async def _cancel(stage: Stage) -> Message:
    tube, found = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    return task_pb.CancelTasksRequest(tube=tube, selector=ids(found))


async def _wait(stage: Stage) -> Message:
    tube, found = await stage.tube_of(limits.SELECTOR_IDS_MAX)
    return task_pb.WaitTasksRequest(tube=tube, selector=ids(found), wait_ms=1)


async def _batch(stage: Stage) -> Message:
    """Return a put with full lists, changes of headers, and moves of all other items."""
    specs = await full_specs(stage, limits.BATCH_ITEMS_MAX // 2)
    others = limits.BATCH_OPERATIONS_MAX - 1
    each = limits.BATCH_ITEMS_MAX // 2 // others
    tube, found = await stage.tube_of(others * each)
    target, _ = await stage.tube_of(0)
    selectors = [ids(found[first : first + each]) for first in range(0, len(found), each)]
    operations = [
        task_pb.BatchOperation(put=task_pb.PutTasksRequest(tube=target, tasks=specs)),
        *(
            task_pb.BatchOperation(
                update=task_pb.UpdateTasksRequest(tube=tube, selector=selector, update=UPDATE)
            )
            for selector in selectors[:CHANGES]
        ),
        *(
            task_pb.BatchOperation(
                move=task_pb.MoveTasksRequest(tube=tube, selector=selector, move_to=target)
            )
            for selector in selectors[CHANGES:]
        ),
    ]
    return task_pb.ExecuteBatchRequest(operations=operations, request_id=stage.new_name())


async def _sweep(stage: Stage) -> Message:
    tube, found = await stage.tube_of(MANY)
    return sweep_pb.StartBulkSweepRequest(
        tube=tube, ids=found, action=sweep_pb.StartBulkSweepRequest.DELETE
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


TASK_REQUESTS: Final[Mapping[str, WorstRequest]] = {
    "PutTasks": _put,
    "TakeTasks": _take,
    "SettleTasks": _settle,
    "Subscribe": _subscribe,
    "GetTasks": _get_tasks,
    "GetTaskGraph": _graph,
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
    "StopBulkSweep": _stop_sweep,
}
