"""Read tasks as they are after a put or a settlement, for requests with ``return_tasks``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.tasks.answers import CONTENT_SLICE_BYTES, encode_tasks
from taskraft_service.api.tasks.outcomes import task_element
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.turns import next_turn

_PUT: Final = pb.PutTasksResponse.TASKS_FIELD_NUMBER
_SETTLED: Final = pb.SettleTasksResponse.TASKS_FIELD_NUMBER


async def encode_put_tasks(
    queues: QueueLocator, tube: str, ids: Sequence[int], wall_offset_ms: int
) -> bytes:
    """Return the tasks of a put as the field ``tasks`` of its response; id 0: a refused item.

    The event loop gets a turn after each ``CONTENT_SLICE_BYTES`` of content, because the tasks
    that existed before can be large.
    """
    parts = []
    read_bytes = 0
    for task_id in ids:
        (view,) = queues.queue_of(tube).get_tasks(tube, [task_id])
        if view is None:
            gone = task_pb2.Task(tube=tube, id=task_id) if task_id else _NO_TASK
            parts.append(task_element(_PUT, gone))
            continue
        parts.append(_encoded(_PUT, view, wall_offset_ms))
        read_bytes += len(view.body)
        if read_bytes >= CONTENT_SLICE_BYTES:
            read_bytes = 0
            await next_turn()
    return b"".join(parts)


def leased_tasks(queues: QueueLocator, request: pb.SettleTasksRequest) -> list[TaskView | None]:
    """Return the tasks of the leases that a request will end, in order; None: no lease."""
    tokens = [token for settlement in request.settlements for token in settlement.tokens]
    return [
        next((task for queue in queues.all if (task := queue.lease(token)) is not None), None)
        for token in tokens
    ]


def returned_bytes(queues: QueueLocator, request: pb.SettleTasksRequest) -> int:
    """Return the content that is read or sent for the tasks of a request, in bytes.

    The payload and the result of an acknowledgement are sent with each of its tasks.
    """
    tokens = [token for settlement in request.settlements for token in settlement.tokens]
    added = sum(
        [
            len(one.tokens) * (len(one.ack.payload) + len(one.ack.result))
            for one in request.settlements
        ]
    )
    return added + sum([queue.leased_bytes(tokens) for queue in queues.all])


async def encode_settled_tasks(
    queues: QueueLocator,
    request: pb.SettleTasksRequest,
    leased: Sequence[TaskView | None],
    refused: Collection[int],
    wall_offset_ms: int,
) -> bytes:
    """Return the tasks of settled leases as the field ``tasks`` of the response, in turns."""
    settlements = [one for one in request.settlements for _ in one.tokens]
    parts = []
    sent_bytes = 0
    for item, (task, settlement) in enumerate(zip(leased, settlements, strict=True)):
        if sent_bytes >= CONTENT_SLICE_BYTES:
            sent_bytes = 0
            await next_turn()
        if task is None or item in refused:
            parts.append(task_element(_SETTLED, _NO_TASK))
            continue
        queue = queues.queue_of(task.tube)
        view = queue.get_tasks(task.tube, [task.id])[0] or queue.failed_task(task.tube, task.id)
        if view is not None:
            parts.append(_encoded(_SETTLED, view, wall_offset_ms))
            sent_bytes += view.content_bytes
            continue
        gone = (
            _acknowledged(task, settlement.ack, wall_offset_ms)
            if settlement.HasField("ack")
            else task_pb2.Task(tube=task.tube, id=task.id)
        )
        parts.append(task_element(_SETTLED, gone))
        sent_bytes += task.content_bytes + len(parts[-1])
    return b"".join(parts)


def _acknowledged(task: TaskView, ack: pb.Settlement.Ack, wall_offset_ms: int) -> task_pb2.Task:
    """Return a task that an acknowledgement has removed, with its new payload and its result."""
    answer = pb.SettleTasksResponse.FromString(_encoded(_SETTLED, task, wall_offset_ms))
    gone = answer.tasks[0]
    for field in _OF_LEASE:
        gone.ClearField(field)
    gone.outcome = task_pb2.Task.PROCESSED
    gone.spec.payload = ack.payload
    gone.result, gone.result_content_type = ack.result, ack.result_content_type
    return gone


_NO_TASK: Final = task_pb2.Task()
_OF_LEASE: Final = ("state", "since_ms", "token", "lease_until_ms", "session_id")
"""Fields of a TAKEN task that a removed task does not have."""


def _encoded(field: int, view: TaskView, wall_offset_ms: int) -> bytes:
    (encoded,) = encode_tasks(
        [view], field, wall_offset_ms, payload_omit=True, shorten_session=True
    )
    return encoded
