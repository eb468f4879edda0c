"""Decode acts of management, and the command that records one."""

from __future__ import annotations

from typing import Final

from taskraft_service.command_codecs.command_codec import V1, CommandCodec
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.queue.entities.managed_act import ManagedAct
from taskraft_service.queue.operations.audit import RecordAct
from taskraft_service.stubs.log.v1 import log_pb2


def act_message(act: ManagedAct) -> log_pb2.ManagedAct:
    """Return an act as a message."""
    return log_pb2.ManagedAct(
        principal=act.principal, peer=act.peer, call=act.call, names=act.names, detail=act.detail
    )


def act_of(message: log_pb2.ManagedAct) -> ManagedAct:
    """Return the act of a message."""
    return ManagedAct(
        message.principal, message.peer, message.call, tuple(message.names), message.detail
    )


def _record_act(message: log_pb2.RecordAct, _raw: bytes, _key: RequestKey) -> RecordAct:
    return RecordAct(act_of(message.act))


RECORD_ACT: Final = CommandCodec("record_act", log_pb2.RecordAct, _record_act, V1)
