"""Decode the commands on selected tasks."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import task_service_pb2
from taskraft_service.command_codecs.command_codec import LOG_FIELDS, CommandCodec
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


def _kick(request: task_service_pb2.KickTasksRequest, _raw: bytes, hash_: int) -> Kick:
    return Kick(
        tube=request.tube,
        count=request.count or 1,
        selector=None if names_nothing(request.selector) else selector_of(request.selector),
        delay_ms=request.delay_ms,
        request_id=request.request_id,
        request_hash=hash_,
        update=update_of(request),
    )


def _bury(request: task_service_pb2.BuryTasksRequest, _raw: bytes, hash_: int) -> Bury:
    return Bury(
        tube=request.tube,
        selector=selector_of(request.selector),
        failure=failure_of(request),
        request_id=request.request_id,
        request_hash=hash_,
    )


def _delete(request: task_service_pb2.DeleteTasksRequest, _raw: bytes, hash_: int) -> Delete:
    return Delete(request.tube, selector_of(request.selector), request.request_id, hash_)


def _move(request: task_service_pb2.MoveTasksRequest, _raw: bytes, hash_: int) -> Move:
    """Return the command; a request without a target returns dead letters."""
    return Move(
        tube=request.tube,
        selector=selector_of(request.selector),
        move_to=request.move_to,
        delay_ms=request.delay_ms if request.HasField("delay_ms") else None,
        position=Position(request.position),
        renew_times=request.renew_times,
        request_id=request.request_id,
        request_hash=hash_,
        update=update_of(request),
    )


def _update(request: task_service_pb2.UpdateTasksRequest, _raw: bytes, hash_: int) -> UpdateTasks:
    return UpdateTasks(
        tube=request.tube,
        selector=selector_of(request.selector),
        update=task_update(request.update),
        request_id=request.request_id,
        request_hash=hash_,
    )


def _snatch(request: task_service_pb2.SnatchTasksRequest, _raw: bytes, hash_: int) -> Snatch:
    selector = selector_of(request.selector)
    return Snatch(request.tube, selector, request.delay_ms, request.request_id, hash_)


def _restart(request: task_service_pb2.RestartTasksRequest, _raw: bytes, hash_: int) -> Restart:
    selector = selector_of(request.selector)
    return Restart(request.tube, selector, request.delay_ms, request.request_id, hash_)


def _switch(request: task_service_pb2.SwitchTasksRequest, _raw: bytes, hash_: int) -> Switch:
    return Switch(
        tube=request.tube,
        selector=selector_of(request.selector),
        state=State(request.state),
        duration_ms=request.duration_ms,
        request_id=request.request_id,
        request_hash=hash_,
    )


def _cancel(request: task_service_pb2.CancelTasksRequest, _raw: bytes, hash_: int) -> Cancel:
    return Cancel(request.tube, selector_of(request.selector), request.request_id, hash_)


KICK: Final = CommandCodec(LOG_FIELDS.KICK_FIELD_NUMBER, task_service_pb2.KickTasksRequest, _kick)
BURY: Final = CommandCodec(LOG_FIELDS.BURY_FIELD_NUMBER, task_service_pb2.BuryTasksRequest, _bury)
DELETE: Final = CommandCodec(
    LOG_FIELDS.DELETE_FIELD_NUMBER, task_service_pb2.DeleteTasksRequest, _delete
)
MOVE: Final = CommandCodec(LOG_FIELDS.MOVE_FIELD_NUMBER, task_service_pb2.MoveTasksRequest, _move)
UPDATE: Final = CommandCodec(
    LOG_FIELDS.UPDATE_FIELD_NUMBER, task_service_pb2.UpdateTasksRequest, _update
)
SNATCH: Final = CommandCodec(
    LOG_FIELDS.SNATCH_FIELD_NUMBER, task_service_pb2.SnatchTasksRequest, _snatch
)
RESTART: Final = CommandCodec(
    LOG_FIELDS.RESTART_FIELD_NUMBER, task_service_pb2.RestartTasksRequest, _restart
)
SWITCH: Final = CommandCodec(
    LOG_FIELDS.SWITCH_FIELD_NUMBER, task_service_pb2.SwitchTasksRequest, _switch
)
CANCEL: Final = CommandCodec(
    LOG_FIELDS.CANCEL_FIELD_NUMBER, task_service_pb2.CancelTasksRequest, _cancel
)
