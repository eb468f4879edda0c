"""Name what can be wrong between Spark and the feed; each says what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    import grpc

DOMAIN: Final = "taskraft.v1"
STATUS_KEY: Final = "grpc-status-details-bin"


class PipelineError(Exception):
    """Anything that this package refuses; the parent of all below."""


class OptionInvalid(PipelineError):
    """An option of the data source is missing, unknown or malformed. Correct it."""


class OffsetInvalid(PipelineError):
    """A text is not an offset of this source. Take it from a checkpoint or a manifest."""


class FeedMismatch(PipelineError):
    """The position is one of another feed: history was broken, for example by a restore.

    No setting skips this, because sequence numbers of two feeds mean different events. Start a new
    query or journal, with a checkpoint of its own.
    """


class CursorTrimmed(PipelineError):
    """Retention has removed events that were not read yet.

    Start a new query, or set ``failOnDataLoss`` to ``false`` to go on with what is left.
    """


class FeedUnreachable(PipelineError):
    """No node answered, however often it was tried. Look at the endpoints and the cluster."""


class FeedRefused(PipelineError):
    """The service refused a request for a reason that trying again does not change."""


class FeedBroken(PipelineError):
    """A node answered with something else than what was asked for: a gap, a repeat, too few events.

    This is a defect of the service. Nothing of the answer was used beyond what was checked.
    """


class JournalRefused(PipelineError):
    """The journal's folder does not fit the feed, the checkpoint, or itself."""


def error_info(error: grpc.RpcError) -> tuple[str, Mapping[str, str]]:
    """Return the reason and the metadata that came with a failed call; without one: empty."""
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
