"""Check a request to read the feed before the first chunk is read."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import error_pb2
from taskraft.v1 import feed_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.queue.feed.chunk import COLUMNS
from taskraft_service.queue.queue import Queue

_CONTENTS: Final = frozenset(pb.ReadChangesRequest.Content.values()) - {
    pb.ReadChangesRequest.CONTENT_UNSPECIFIED
}
_COLUMNS: Final = frozenset(("seq", *(name for name, _, _ in COLUMNS)))
_KINDS: Final = frozenset(pb.ChangeEvent.Kind.values()) - {pb.ChangeEvent.KIND_UNSPECIFIED}


def check_read(request: pb.ReadChangesRequest, queue: Queue) -> None:
    """Check the fields of ReadChanges against the feed of a queue.

    Raises:
        CallRefused: INVALID_FIELD, FEED_MISMATCH.
    """
    violations = Violations()
    violations.check_not_negative("from_seq", request.from_seq)
    violations.check_not_negative("to_seq", request.to_seq)
    violations.check_not_negative("wait_ms", request.wait_ms)
    if request.chunk_bytes_max:
        low, high = limits.CHUNK_BYTES_MIN, limits.CHUNK_BYTES_MAX
        violations.check_range("chunk_bytes_max", request.chunk_bytes_max, low, high)
    violations.check_choice("encoding", request.encoding, pb.ReadChangesRequest.Encoding.values())
    violations.check_count("tubes", request.tubes, limits.NAMES_MAX)
    violations.check_count("kinds", request.kinds, limits.NAMES_MAX)
    for place, name in enumerate(request.tubes):
        violations.check_tube(f"tubes[{place}]", name)
    for place, kind in enumerate(request.kinds):
        violations.check_choice(f"kinds[{place}]", kind, _KINDS)
    violations.check_count("contents", request.contents, limits.NAMES_MAX)
    for place, part in enumerate(request.contents):
        violations.check_choice(f"contents[{place}]", part, _CONTENTS)
    if request.contents and request.encoding == pb.ReadChangesRequest.COLUMNS:
        violations.add("contents", "not allowed with the encoding COLUMNS")
    _check_columns(violations, request)
    violations.check_range("partition", request.partition, 0, len(queue.feed.views()) - 1)
    if 0 < request.to_seq < request.from_seq:
        violations.add("to_seq", f"{request.to_seq} is before from_seq")
    violations.raise_if_any()
    check_same_feed(queue, request.feed_id)


def _check_columns(violations: Violations, request: pb.ReadChangesRequest) -> None:
    violations.check_count("columns", request.columns, limits.NAMES_MAX)
    for place, name in enumerate(request.columns):
        if name not in _COLUMNS:
            violations.add(f"columns[{place}]", f"{name!r} is no array of ChangeColumns")
    if request.columns and request.encoding != pb.ReadChangesRequest.COLUMNS:
        violations.add("encoding", "must be COLUMNS if columns are named")


def check_same_feed(queue: Queue, feed_id: str) -> None:
    """Refuse a cursor of another feed.

    Raises:
        CallRefused: FEED_MISMATCH.
    """
    if feed_id and feed_id != queue.feed.feed_id:
        raise CallRefused(
            error_pb2.Error.FEED_MISMATCH,
            "the cursor belongs to another feed; start again with the feed of this cluster",
            {"feed_id": queue.feed.feed_id},
        )
