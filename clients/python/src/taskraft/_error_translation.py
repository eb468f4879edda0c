"""Translate gRPC statuses and error messages of the API into the exceptions of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc

from taskraft import catalogue, errors
from taskraft._connection_errors import connection_error
from taskraft.v1 import error_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from google.rpc import status_pb2

    from taskraft.v1 import task_pb2

STATUS_KEY: Final = "grpc-status-details-bin"
"""Trailing metadata key of the google.rpc.Status."""


def metadata_of(call: grpc.aio.AioRpcError | grpc.Call) -> dict[str, str | bytes]:
    """Return initial and trailing metadata of a finished call in one dictionary."""
    pairs: dict[str, str | bytes] = {}
    for metadata in (call.initial_metadata(), call.trailing_metadata()):
        pairs.update(metadata or ())
    return pairs


def from_rpc_error(error: grpc.RpcError, address: str = "") -> errors.TaskraftError:
    """Return the exception for a call to `address` that failed as a whole."""
    assert isinstance(error, grpc.aio.AioRpcError | grpc.Call)
    code: grpc.StatusCode = error.code()
    text = error.details() or code.name
    packed = metadata_of(error).get(STATUS_KEY)
    if isinstance(packed, bytes):
        from google.rpc import status_pb2  # noqa: PLC0415 - only failures pay for the import

        typed = _from_status(status_pb2.Status.FromString(packed), code.name)
        if typed is not None:
            return typed
    return _from_code(code, text, address)


def _from_code(code: grpc.StatusCode, text: str, address: str) -> errors.TaskraftError:
    """Return the exception for a status without details, which gRPC itself or a proxy created."""
    match code:
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            return connection_error(text, address)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return errors.DeadlinePassed(f"{address or 'the node'} did not answer in time")
        case grpc.StatusCode.UNIMPLEMENTED:
            return errors.NotSupported(
                f"{address or 'the node'} does not implement this method ({text})",
                advice="Use the client port (default 7401), not the peer port, or a newer server.",
            )
        case grpc.StatusCode.UNAUTHENTICATED:
            return errors.NoCredentials(text)
        case grpc.StatusCode.PERMISSION_DENIED:
            return errors.NotAllowed(text)
        case _:
            unknown = errors.TaskraftError(text, code=code.name)
            unknown.reason = code.name
            return unknown


def _from_status(status: status_pb2.Status, code: str) -> errors.TaskraftError | None:
    """Return the exception for the status details; None if no detail is from taskraft."""
    from google.rpc import error_details_pb2  # noqa: PLC0415 - only failures pay for the import

    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    request = error_details_pb2.BadRequest()
    is_ours, retry_ms = False, None
    for detail in status.details:
        if detail.Unpack(info):
            is_ours = info.domain == catalogue.DOMAIN
        elif detail.Unpack(retry):
            retry_ms = retry.retry_delay.ToMilliseconds()
        else:
            detail.Unpack(request)
    if not is_ours:
        return None
    error = catalogue.from_reason(
        info.reason, status.message, metadata=dict(info.metadata), retry_ms=retry_ms, code=code
    )
    if isinstance(error, errors.InvalidField):
        error.violations = tuple(
            errors.Violation(violation.field, violation.description)
            for violation in request.field_violations
        )
    return error


def from_item(error: error_pb2.Error) -> errors.TaskraftError:
    """Return the exception for one item of a list, or for one message of a stream."""
    metadata: Mapping[str, str] = dict(error.metadata)
    retry_ms = metadata.get("retry_ms", "")
    return catalogue.from_reason(
        error_pb2.Error.Reason.Name(error.reason)
        if error.reason in error_pb2.Error.Reason.values()
        else str(error.reason),
        error.message,
        metadata=metadata,
        retry_ms=int(retry_ms) if retry_ms.isdigit() else None,
    )


def refused_items(items: Iterable[error_pb2.ItemError]) -> dict[int, errors.TaskraftError]:
    """Return the errors of refused items by position."""
    return {item.item: from_item(item.error) for item in items}


def name_task(error: errors.TaskraftError, task: task_pb2.Task) -> None:
    """Add tube and id of the task to an error that names only the lease token."""
    error.args = (f"{task.tube}/{task.id}: {error.message}",)
    error.metadata = {**error.metadata, "tube": task.tube, "task_id": str(task.id)}


def raise_refused_items(
    refused: Mapping[int, errors.TaskraftError], items: int, *, task_ids: Sequence[int] = ()
) -> None:
    """Raise an error if items of a list were refused.

    Args:
        refused: errors by position.
        items: number of items in the list.
        task_ids: for puts: one id per item, 0 for a refused item.

    Raises:
        ItemsRefused: some of several items were refused.
        TaskraftError: the single item was refused.
    """
    if len(refused) == 1 == items:
        raise next(iter(refused.values()))
    if refused:
        raise errors.ItemsRefused(refused, task_ids=task_ids, items=items)
