"""Errors of the pipeline; each docstring has advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import grpc

DOMAIN: Final = "taskraft.v1"
STATUS_KEY: Final = "grpc-status-details-bin"


class PipelineError(Exception):
    """Base class of all errors of this package."""


class OptionInvalid(PipelineError):
    """An option of the data source is missing, unknown or malformed; correct the option."""


class OffsetInvalid(PipelineError):
    """A string is not an offset of this source; copy offsets from a checkpoint or a manifest."""


class FeedMismatch(PipelineError):
    """The position belongs to another feed, because a restore has started a new feed.

    No setting skips this error, because equal sequence numbers of two feeds mean different events.
    Start a new query or journal with its own checkpoint.
    """


class CursorTrimmed(PipelineError):
    """Retention has removed events that were not read yet.

    Start a new query, or set ``failOnDataLoss`` to ``false`` to continue with the events that are
    left.
    """


class FeedUnreachable(PipelineError):
    """No node answered within the allowed retries; check the endpoints and the cluster."""


class FeedRefused(PipelineError):
    """The service refused a request, and a retry does not help."""


class FeedBroken(PipelineError):
    """A node sent an invalid answer: a gap, a repetition, or too few events.

    This is a bug of the service. Only the checked part of the answer was used.
    """


class TasksRefused(PipelineError):
    """A row is not a valid task; correct the rows, or set ``rejects`` to put the other rows."""


class TransactionRefused(PipelineError):
    """A transaction cannot be committed; nothing was put, and a new attempt may succeed."""


class TransactionReused(PipelineError):
    """Another query has committed this ``txnAppId`` and version, so this query could lose rows.

    A query with a new checkpoint counts its batches from 0. Choose a new ``txnAppId`` for it.
    """


class SnapshotExpired(PipelineError):
    """The node no longer keeps the snapshot of a query, or has died; call ``load()`` again.

    Raise ``snapshotTtl`` if more time passes between two reads of one DataFrame.
    """


class JournalRefused(PipelineError):
    """The journal's folder does not match the feed, the checkpoint, or its own manifests."""


def refusal(error: FeedRefused) -> grpc.RpcError:
    """Return the failed call behind a refusal."""
    cause = error.__cause__
    assert cause is not None, "a refusal is raised from the error of its call"
    return cast("grpc.RpcError", cause)


def field_violations(error: grpc.RpcError) -> list[tuple[str, str]]:
    """Return path and description of each invalid field that a failed call names."""
    return [
        (violation.field, violation.description)
        for status in _statuses(error)
        for detail in status.details
        if detail.type_url.endswith("/google.rpc.BadRequest")
        for violation in error_details_pb2.BadRequest.FromString(detail.value).field_violations
    ]


def _statuses(error: grpc.RpcError) -> Iterator[status_pb2.Status]:
    trailers = getattr(error, "trailing_metadata", lambda: None)() or ()
    for key, value in trailers:
        if key == STATUS_KEY:
            yield status_pb2.Status.FromString(value)


def error_info(error: grpc.RpcError) -> tuple[str, Mapping[str, str]]:
    """Return reason and metadata of a failed call; empty if the call has no ErrorInfo."""
    for status in _statuses(error):
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info) and info.domain == DOMAIN:
                return info.reason, dict(info.metadata)
    return "", {}
