"""Every reason has its gRPC code and its details."""

import grpc
import pytest
from google.rpc import error_details_pb2

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.status import (
    CODES,
    DOMAIN,
    RETRYABLE_REASONS,
    CallRefused,
    refused_by_queue,
    rpc_status,
)
from taskraft_service.queue.entities.refusal import Reason, Refusal

REASONS = error_pb2.Error.Reason.items()


@pytest.mark.parametrize(("name", "reason"), REASONS)
def test_every_reason_has_a_status_code_and_details(name, reason):
    status = rpc_status(CallRefused(reason, "why", {"a": "b"}, [("f", "wrong")]))
    assert status.code == CODES[reason].value[0]
    assert CODES[reason] is not grpc.StatusCode.OK
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain, dict(info.metadata)) == (name, DOMAIN, {"a": "b"})
    has_retry = any(one.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for one in status.details)
    assert has_retry == (reason in RETRYABLE_REASONS)
    assert any(one.Is(error_details_pb2.BadRequest.DESCRIPTOR) for one in status.details)


def test_the_table_agrees_with_the_contract():
    codes = {name: CODES[reason].name for name, reason in REASONS}
    assert codes["TUBE_NOT_FOUND"] == "NOT_FOUND"
    assert codes["LEASE_STALE"] == "FAILED_PRECONDITION"
    assert codes["PAYLOAD_TOO_LARGE"] == "INVALID_ARGUMENT"
    assert codes["COMMIT_UNKNOWN"] == "UNAVAILABLE"
    assert codes["CURSOR_TRIMMED"] == "OUT_OF_RANGE"


@pytest.mark.parametrize("reason", Reason)
def test_the_reasons_of_the_core_are_in_the_contract(reason):
    assert error_pb2.Error.Reason.Name(reason) == reason.name
    assert refused_by_queue(Refusal(reason, "why")).reason == reason


def test_a_refusal_of_the_core_with_a_field_becomes_a_violation():
    error = refused_by_queue(Refusal(Reason.INVALID_FIELD, "why", {"field": "ttl_ms"}))
    assert error.violations == (("ttl_ms", "why"),)


def test_violations_beyond_the_limit_are_counted():
    violations = [(f"tasks[{place}].ttl_ms", "5 means nothing") for place in range(10_000)]
    status = rpc_status(CallRefused(error_pb2.Error.INVALID_FIELD, "why", {"a": "b"}, violations))
    assert status.ByteSize() < 5 * 1024
    info, detail = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert status.details[0].Unpack(info)
    assert dict(info.metadata) == {"a": "b", "violations": "10000"}
    assert status.details[1].Unpack(detail)
    reported = [(one.field, one.description) for one in detail.field_violations]
    assert reported == violations[: len(reported)]
    assert len(reported) > 80
