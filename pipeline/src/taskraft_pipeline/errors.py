"""Errors of the pipeline; each docstring has advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

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


class JournalRefused(PipelineError):
    """The journal's folder does not match the feed, the checkpoint, or its own manifests."""


def error_info(error: grpc.RpcError) -> tuple[str, Mapping[str, str]]:
    """Return reason and metadata of a failed call; empty if the call has no ErrorInfo."""
    trailers = getattr(error, "trailing_metadata", lambda: None)() or ()
    for key, value in trailers:
        if key != STATUS_KEY:
            continue
        status = status_pb2.Status.FromString(value)
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info) and info.domain == DOMAIN:
                return info.reason, dict(info.metadata)
    return "", {}
