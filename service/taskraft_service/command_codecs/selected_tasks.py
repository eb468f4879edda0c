"""Decode the commands on selected tasks."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import task_service_pb2
from taskraft_service.command_codecs.command_codec import V1, CommandCodec
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.command_codecs.retry_policy import failure_of
from taskraft_service.command_codecs.selector import names_nothing, selector_of
from taskraft_service.command_codecs.task_update import task_update, update_of
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.operations.admin import Restart, Snatch, Switch
from taskraft_service.queue.operations.cancel import Cancel
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.update_tasks import UpdateTasks


def _kick(request: task_service_pb2.KickTasksRequest, _raw: bytes, key: RequestKey) -> Kick:
    return Kick(
        tube=request.tube,
        count=request.count or 1,
        selector=None if names_nothing(request.selector) else selector_of(request.selector),
        delay_ms=request.delay_ms,
        request_id=key.scope + request.request_id,
        request_hash=key.hash,
        update=update_of(request),
    )


def _bury(request: task_service_pb2.BuryTasksRequest, _raw: bytes, key: RequestKey) -> Bury:
    return Bury(
        tube=request.tube,
        selector=selector_of(request.selector),
        failure=failure_of(request),
        request_id=key.scope + request.request_id,
        request_hash=key.hash,
    )


def _delete(request: task_service_pb2.DeleteTasksRequest, _raw: bytes, key: RequestKey) -> Delete:
    return Delete(
        request.tube, selector_of(request.selector), key.scope + request.request_id, key.hash
    )


def _move(request: task_service_pb2.MoveTasksRequest, _raw: bytes, key: RequestKey) -> Move:
    """Return the command; a request without a target returns dead letters."""
    return Move(
        tube=request.tube,
        selector=selector_of(request.selector),
        move_to=request.move_to,
        delay_ms=request.delay_ms if request.HasField("delay_ms") else None,
        position=Position(request.position),
        renew_times=request.renew_times,
        request_id=key.scope + request.request_id,
        request_hash=key.hash,
        update=update_of(request),
    )


def _update(
    request: task_service_pb2.UpdateTasksRequest, _raw: bytes, key: RequestKey
) -> UpdateTasks:
    return UpdateTasks(
        tube=request.tube,
        selector=selector_of(request.selector),
        update=task_update(request.update),
        request_id=key.scope + request.request_id,
        request_hash=key.hash,
    )


def _snatch(request: task_service_pb2.SnatchTasksRequest, _raw: bytes, key: RequestKey) -> Snatch:
    selector = selector_of(request.selector)
    return Snatch(
        request.tube, selector, request.delay_ms, key.scope + request.request_id, key.hash
    )


def _restart(
    request: task_service_pb2.RestartTasksRequest, _raw: bytes, key: RequestKey
) -> Restart:
    selector = selector_of(request.selector)
    return Restart(
        request.tube, selector, request.delay_ms, key.scope + request.request_id, key.hash
    )


def _switch(request: task_service_pb2.SwitchTasksRequest, _raw: bytes, key: RequestKey) -> Switch:
    return Switch(
        tube=request.tube,
        selector=selector_of(request.selector),
        state=State(request.state),
        duration_ms=request.duration_ms,
        request_id=key.scope + request.request_id,
        request_hash=key.hash,
    )


def _cancel(request: task_service_pb2.CancelTasksRequest, _raw: bytes, key: RequestKey) -> Cancel:
    return Cancel(
        request.tube, selector_of(request.selector), key.scope + request.request_id, key.hash
    )


KICK: Final = CommandCodec("kick", task_service_pb2.KickTasksRequest, _kick, V1)
BURY: Final = CommandCodec("bury", task_service_pb2.BuryTasksRequest, _bury, V1)
DELETE: Final = CommandCodec("delete", task_service_pb2.DeleteTasksRequest, _delete, V1)
MOVE: Final = CommandCodec("move", task_service_pb2.MoveTasksRequest, _move, V1)
UPDATE: Final = CommandCodec("update", task_service_pb2.UpdateTasksRequest, _update, V1)
SNATCH: Final = CommandCodec("snatch", task_service_pb2.SnatchTasksRequest, _snatch, V1)
RESTART: Final = CommandCodec("restart", task_service_pb2.RestartTasksRequest, _restart, V1)
SWITCH: Final = CommandCodec("switch", task_service_pb2.SwitchTasksRequest, _switch, V1)
CANCEL: Final = CommandCodec("cancel", task_service_pb2.CancelTasksRequest, _cancel, V1)
