"""Decode the commands on groups."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import group_service_pb2 as pb
from taskraft_service.command_codecs.command_codec import V1, CommandCodec
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.queue.entities.group import GroupTask
from taskraft_service.queue.operations.groups import (
    CancelGroup,
    CreateGroup,
    SetEndTask,
    StartGroup,
)


def _group_task(task: pb.GroupTask) -> GroupTask:
    return GroupTask(task.tube, task.spec.SerializeToString(deterministic=True))


def _create(request: pb.CreateGroupRequest, _raw: bytes, key: RequestKey) -> CreateGroup:
    group = request.group
    return CreateGroup(
        name=group.name,
        end_task=_group_task(group.end_task) if group.HasField("end_task") else None,
        abort_task=_group_task(group.abort_task) if group.HasField("abort_task") else None,
        only_if_processed=group.only_if_processed,
        request_id=key.scope + request.request_id,
        request_hash=key.hash,
        owner=key.owner,
    )


def _start(request: pb.StartGroupRequest, _raw: bytes, key: RequestKey) -> StartGroup:
    return StartGroup(request.name, key.scope + request.request_id, key.hash)


def _cancel(request: pb.CancelGroupRequest, _raw: bytes, key: RequestKey) -> CancelGroup:
    request_id = key.scope + request.request_id
    return CancelGroup(request.name, request.revoke, request_id, key.hash, key.owner)


def _set_end_task(request: pb.SetEndTaskRequest, _raw: bytes, key: RequestKey) -> SetEndTask:
    return SetEndTask(
        name=request.name,
        end_task=_group_task(request.end_task) if request.HasField("end_task") else None,
        abort_task=_group_task(request.abort_task) if request.HasField("abort_task") else None,
        only_if_processed=request.only_if_processed,
        request_id=key.scope + request.request_id,
        request_hash=key.hash,
        owner=key.owner,
    )


CREATE_GROUP: Final = CommandCodec("create_group", pb.CreateGroupRequest, _create, V1)
START_GROUP: Final = CommandCodec("start_group", pb.StartGroupRequest, _start, V1)
CANCEL_GROUP: Final = CommandCodec("cancel_group", pb.CancelGroupRequest, _cancel, V1)
SET_END_TASK: Final = CommandCodec("set_end_task", pb.SetEndTaskRequest, _set_end_task, V1)
