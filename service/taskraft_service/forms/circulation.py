"""Make what moves tasks that nobody settles from the client's request."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import task_service_pb2
from taskraft_service.forms.form import IN_LOG, Form
from taskraft_service.forms.retry import failure_of
from taskraft_service.forms.selection import is_empty, selector_of
from taskraft_service.forms.update import update_of
from taskraft_service.queue.commands.circulation import Bury, Delete, Kick, Move
from taskraft_service.queue.entities.position import Position


def _kick(request: task_service_pb2.KickTasksRequest, _raw: bytes, hash_: int) -> Kick:
    return Kick(
        tube=request.tube,
        count=request.count or 1,
        selector=None if is_empty(request.selector) else selector_of(request.selector),
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
    """A request that goes back names no tube."""
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


KICK: Final = Form(IN_LOG.KICK_FIELD_NUMBER, task_service_pb2.KickTasksRequest, _kick)
BURY: Final = Form(IN_LOG.BURY_FIELD_NUMBER, task_service_pb2.BuryTasksRequest, _bury)
DELETE: Final = Form(IN_LOG.DELETE_FIELD_NUMBER, task_service_pb2.DeleteTasksRequest, _delete)
MOVE: Final = Form(IN_LOG.MOVE_FIELD_NUMBER, task_service_pb2.MoveTasksRequest, _move)
