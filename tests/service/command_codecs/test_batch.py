"""Decode the operations of a batch from its bytes."""

import pytest

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import wire
from taskraft_service.command_codecs.batch import BATCH
from taskraft_service.command_codecs.request_key import NO_KEY
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete

IDS = task_pb2.TaskSelector(ids=[3, 1])


def test_the_last_encoded_operation_counts_and_unknown_fields_are_ignored():
    bury = pb.BatchOperation(bury={"tube": "t", "selector": IDS}).SerializeToString()
    delete = pb.BatchOperation(delete={"tube": "t", "selector": IDS}).SerializeToString()
    unknown = wire.length_delimited(99, b"x")
    for operation, kind in ((bury + delete + unknown, Delete), (delete + bury, Bury)):
        raw = wire.length_delimited(pb.ExecuteBatchRequest.OPERATIONS_FIELD_NUMBER, operation)
        assert [type(one) for one in BATCH.decode(raw, NO_KEY).operations] == [kind]


PUT = wire.length_delimited(1, wire.length_delimited(2, b"t") + b"\x1a\x03\x0a\x01a")
KICK = pb.BatchOperation(kick={"tube": "t", "selector": IDS}).SerializeToString()
DELETE = pb.BatchOperation(delete={"tube": "t", "selector": IDS}).SerializeToString()
DELETE_OF_OTHER_TUBE = wire.tag(5, wire.FIXED64) + b"\x12\x01x\x1a\x03\x0a\x01\x07"


@pytest.mark.parametrize(
    "operation",
    [
        PUT + PUT,
        PUT + wire.length_delimited(1, b""),
        PUT + wire.length_delimited(1, wire.length_delimited(2, b"other")),
        PUT + KICK + PUT,
        PUT + wire.length_delimited(99, b"x") + PUT,
        KICK + wire.length_delimited(3, wire.length_delimited(2, b"t")),
        DELETE + DELETE_OF_OTHER_TUBE,
        DELETE_OF_OTHER_TUBE + DELETE,
        DELETE + b"\x28\x01",
    ],
)
def test_an_operation_is_that_of_the_parsed_request(operation):
    """Otherwise, a batch could do what the checks and the permissions have not seen."""
    request = pb.ExecuteBatchRequest(operations=[pb.BatchOperation.FromString(operation)])
    request.DiscardUnknownFields()
    raw = wire.length_delimited(pb.ExecuteBatchRequest.OPERATIONS_FIELD_NUMBER, operation)
    assert BATCH.decode(raw, NO_KEY) == BATCH.decode(request.SerializeToString(), NO_KEY)


@pytest.mark.parametrize("operation", [b"", wire.length_delimited(99, b"x"), b"\x08\x01"])
def test_a_batch_with_an_unknown_operation_is_refused(operation):
    raw = wire.length_delimited(pb.ExecuteBatchRequest.OPERATIONS_FIELD_NUMBER, operation)
    with pytest.raises(wire.WireMalformed):
        BATCH.decode(raw, NO_KEY)
