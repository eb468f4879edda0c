"""The catalogue determines exceptions, retries and the error page."""

import grpc
import pytest

from taskraft import errors
from taskraft._error_translation import from_item, from_rpc_error
from taskraft.catalogue import CATALOGUE, from_reason, is_retried
from taskraft.cli import failures
from taskraft.v1 import error_pb2
from tests.clients.refusals import Refusal
from tools import errors_page

REASONS = [name for name, number in error_pb2.Error.Reason.items() if number]


def test_the_table_covers_every_reason_of_the_contract_and_no_other():
    assert sorted(CATALOGUE) == sorted(REASONS)


@pytest.mark.parametrize("reason", REASONS)
def test_a_row_agrees_with_the_contract(reason):
    row = CATALOGUE[reason]
    assert row.reason == row.exception.reason == reason
    assert row.code in grpc.StatusCode.__members__
    assert row.meaning.endswith(".")
    assert row.advice.endswith(".")
    assert row.is_retried or not row.final_advice
    assert row.final_advice.endswith(".") or "Do nothing" not in row.advice


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_has_an_exception_of_its_own(reason):
    error = from_reason(reason, "because", metadata={"a": "b"}, retry_ms=5)
    assert type(error) is CATALOGUE[reason].exception
    assert (str(error), error.metadata, error.retry_ms) == ("because", {"a": "b"}, 5)
    assert [row.exception for row in CATALOGUE.values()].count(type(error)) == 1


def test_an_unknown_reason_of_a_newer_server_raises_the_base_exception():
    error = from_reason("SUN_TOO_HOT", "it is")
    assert type(error) is errors.TaskraftError
    assert error.reason == "SUN_TOO_HOT"
    assert not is_retried(error)


def test_only_retryable_reasons_are_retried():
    retried = [row for row in CATALOGUE.values() if row.is_retried]
    assert retried
    assert all(issubclass(row.exception, errors.RetryableError) for row in retried)


class Failed(grpc.aio.AioRpcError):
    """A failed call as grpc.aio raises it."""

    def __init__(self, code, details="", trailing=()):
        super().__init__(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details, details)


def failed(refused):
    status = refused.status()
    return Failed(status.code, status.details, status.trailing_metadata)


def test_status_details_become_a_typed_exception():
    refused = Refusal(
        "INVALID_FIELD",
        grpc.StatusCode.INVALID_ARGUMENT,
        violations=[("tube", "is empty"), ("tasks[0].ttl_ms", "is negative")],
    )
    error = from_rpc_error(failed(refused))
    assert isinstance(error, errors.InvalidField)
    assert [violation.field for violation in error.violations] == ["tube", "tasks[0].ttl_ms"]


def test_retry_info_and_metadata_are_read():
    refused = Refusal(
        "OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED, retry_ms=1_500, metadata={"limit": "7"}
    )
    error = from_rpc_error(failed(refused))
    assert isinstance(error, errors.Overloaded)
    assert (error.retry_ms, error.metadata["limit"]) == (1_500, "7")


@pytest.mark.parametrize(
    ("code", "exception"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.Unavailable),
        (grpc.StatusCode.CANCELLED, errors.Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlinePassed),
        (grpc.StatusCode.UNIMPLEMENTED, errors.NotSupported),
        (grpc.StatusCode.UNAUTHENTICATED, errors.NoCredentials),
        (grpc.StatusCode.PERMISSION_DENIED, errors.NotAllowed),
        (grpc.StatusCode.DATA_LOSS, errors.TaskraftError),
    ],
)
def test_a_status_without_details_is_translated_by_its_code(code, exception):
    assert type(from_rpc_error(Failed(code, "text"))) is exception


def test_the_error_of_an_item_is_typed_too():
    error = error_pb2.Error(
        reason=error_pb2.Error.KEY_TAKEN, message="taken", metadata={"task_id": "17"}
    )
    typed = from_item(error)
    assert isinstance(typed, errors.KeyTaken)
    assert typed.task_id == 17


def test_an_error_without_text_uses_the_meaning_of_the_table():
    assert str(from_reason("NO_LEADER", "")) == CATALOGUE["NO_LEADER"].meaning
    assert str(errors.LeaseStale()) == "lease stale"


def test_the_errors_page_matches_the_table():
    assert errors_page.PAGE.read_text() == errors_page.page(), "run `python -m tools.errors_page`"


def test_every_reason_has_an_exit_code():
    codes = {failures.exit_code(row.exception("")) for row in CATALOGUE.values()}
    assert codes == {1, 2, 3, 4, 5}
