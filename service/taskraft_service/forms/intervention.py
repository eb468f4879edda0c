"""Make what changes chosen tasks from outside from the client's request."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.forms.form import IN_LOG, Form
from taskraft_service.forms.selection import selector_of
from taskraft_service.forms.update import task_update
from taskraft_service.queue.commands.intervention import (
    Cancel,
    Restart,
    Snatch,
    Switch,
    UpdateTasks,
)
from taskraft_service.queue.entities.task_view import State


def _update(request: pb.UpdateTasksRequest, _raw: bytes, hash_: int) -> UpdateTasks:
    return UpdateTasks(
        tube=request.tube,
        selector=selector_of(request.selector),
        update=task_update(request.update),
        request_id=request.request_id,
        request_hash=hash_,
    )


def _snatch(request: pb.SnatchTasksRequest, _raw: bytes, hash_: int) -> Snatch:
    selector = selector_of(request.selector)
    return Snatch(request.tube, selector, request.delay_ms, request.request_id, hash_)


def _restart(request: pb.RestartTasksRequest, _raw: bytes, hash_: int) -> Restart:
    selector = selector_of(request.selector)
    return Restart(request.tube, selector, request.delay_ms, request.request_id, hash_)


def _switch(request: pb.SwitchTasksRequest, _raw: bytes, hash_: int) -> Switch:
    return Switch(
        tube=request.tube,
        selector=selector_of(request.selector),
        state=State(request.state),
        duration_ms=request.duration_ms,
        request_id=request.request_id,
        request_hash=hash_,
    )


def _cancel(request: pb.CancelTasksRequest, _raw: bytes, hash_: int) -> Cancel:
    return Cancel(request.tube, selector_of(request.selector), request.request_id, hash_)


UPDATE: Final = Form(IN_LOG.UPDATE_FIELD_NUMBER, pb.UpdateTasksRequest, _update)
SNATCH: Final = Form(IN_LOG.SNATCH_FIELD_NUMBER, pb.SnatchTasksRequest, _snatch)
RESTART: Final = Form(IN_LOG.RESTART_FIELD_NUMBER, pb.RestartTasksRequest, _restart)
SWITCH: Final = Form(IN_LOG.SWITCH_FIELD_NUMBER, pb.SwitchTasksRequest, _switch)
CANCEL: Final = Form(IN_LOG.CANCEL_FIELD_NUMBER, pb.CancelTasksRequest, _cancel)
