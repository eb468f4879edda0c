"""Decode a batch; each operation is decoded like a command of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import wire
from taskraft_service.command_codecs.command_codec import V1, CommandCodec
from taskraft_service.command_codecs.put import PUT
from taskraft_service.command_codecs.request_key import NO_KEY, RequestKey
from taskraft_service.command_codecs.selected_tasks import BURY, DELETE, KICK, MOVE, UPDATE
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.queue.entities.ownership import EVERYBODY
from taskraft_service.queue.operations.batch import BatchOperation, ExecuteBatch
from taskraft_service.queue.operations.registry import Command

_OPERATIONS: Final = pb.ExecuteBatchRequest.OPERATIONS_FIELD_NUMBER
_CODECS: Final[Mapping[int, Callable[[bytes, RequestKey], Command]]] = {
    pb.BatchOperation.PUT_FIELD_NUMBER: PUT.decode,
    pb.BatchOperation.SETTLE_FIELD_NUMBER: SETTLE.decode,
    pb.BatchOperation.KICK_FIELD_NUMBER: KICK.decode,
    pb.BatchOperation.BURY_FIELD_NUMBER: BURY.decode,
    pb.BatchOperation.DELETE_FIELD_NUMBER: DELETE.decode,
    pb.BatchOperation.UPDATE_FIELD_NUMBER: UPDATE.decode,
    pb.BatchOperation.MOVE_FIELD_NUMBER: MOVE.decode,
}


def _operation(raw: bytes, key: RequestKey) -> BatchOperation:
    """Return one operation, the same as the checks of the call have seen in the parsed request.

    As in any oneof, the last kind counts. Adjacent contents of one kind are merged; to merge two
    messages is to join their bytes. A field of another wire type is unknown.
    """
    kind, contents = 0, list[bytes]()
    for number, wire_type, content in wire.fields(raw):
        if number in _CODECS and wire_type == wire.LENGTH and isinstance(content, bytes):
            if number != kind:
                kind, contents = number, []
            contents.append(content)
    if not kind:
        raise wire.WireMalformed("a batch holds an operation of an unknown kind")
    command = _CODECS[kind](b"".join(contents), key)
    assert isinstance(command, BatchOperation)
    return command


def _batch(request: pb.ExecuteBatchRequest, raw: bytes, key: RequestKey) -> ExecuteBatch:
    own = NO_KEY if key.owner is EVERYBODY else RequestKey(owner=key.owner)
    operations = [_operation(operation, own) for operation in wire.elements(raw, _OPERATIONS)]
    return ExecuteBatch(operations, key.scope + request.request_id, key.hash)


BATCH: Final = CommandCodec("batch", pb.ExecuteBatchRequest, _batch, V1)
