"""Decode updates of tasks."""

from __future__ import annotations

from taskraft.v1 import task_pb2, task_service_pb2
from taskraft_service.queue.transitions.updating import TaskUpdate


def task_update(update: task_pb2.TaskUpdate) -> TaskUpdate:
    """Return an update; the changes of the body stay encoded."""
    has = update.HasField
    content = task_pb2.TaskUpdate(
        headers_set=update.headers_set, headers_remove=update.headers_remove
    )
    if has("payload"):
        content.payload = update.payload
    if has("content_type"):
        content.content_type = update.content_type
    return TaskUpdate(
        content=content.SerializeToString(deterministic=True),
        priority=update.priority if has("priority") else None,
        delay_ms=update.delay_ms if has("delay_ms") else None,
        ttl_ms=update.ttl_ms if has("ttl_ms") else None,
        ttr_ms=update.ttr_ms if has("ttr_ms") else None,
    )


def update_of(
    message: (
        task_service_pb2.Settlement.Release
        | task_service_pb2.Settlement.Bury
        | task_service_pb2.KickTasksRequest
        | task_service_pb2.MoveTasksRequest
        | task_service_pb2.UpdateTasksRequest
    ),
) -> TaskUpdate | None:
    """Return the update in a message, or None."""
    return task_update(message.update) if message.HasField("update") else None


def new_payload(payload: bytes) -> TaskUpdate:
    """Return an update that replaces the payload only."""
    content = task_pb2.TaskUpdate(payload=payload)
    return TaskUpdate(content=content.SerializeToString(deterministic=True))
