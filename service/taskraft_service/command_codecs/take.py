"""Decode a take."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import task_service_pb2
from taskraft_service.command_codecs.command_codec import V1, CommandCodec
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.limits import TAKE_BYTES_DEFAULT, TAKE_BYTES_MAX
from taskraft_service.queue.operations.take import Take


def _take(request: task_service_pb2.TakeTasksRequest, _raw: bytes, key: RequestKey) -> Take:
    weights = [source.weight for source in request.sources]
    return Take(
        tubes=[source.tube for source in request.sources],
        session_id=request.session_id,
        tasks_max=request.tasks_max or 1,
        bytes_max=min(request.bytes_max or TAKE_BYTES_DEFAULT, TAKE_BYTES_MAX),
        ttr_ms=request.ttr_ms if request.HasField("ttr_ms") else None,
        types=tuple(request.types),
        priority_bound=request.priority_bound if request.HasField("priority_bound") else None,
        task_id=request.task_id if request.HasField("task_id") else None,
        request_id=key.scope + request.request_id,
        request_hash=key.hash,
        weights=tuple(weights) if any(weights) else (),
        taker=key.owner.principal,
    )


TAKE: Final = CommandCodec("take", task_service_pb2.TakeTasksRequest, _take, V1)
