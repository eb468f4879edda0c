"""Encode partitions and chunks of the change feed as messages: as events or as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from taskraft.v1 import feed_service_pb2 as pb
from taskraft.v1 import task_pb2
from taskraft_service import limits
from taskraft_service.access.caller import Caller
from taskraft_service.access.permissions import ALL_TUBES, Verb
from taskraft_service.queue.feed.chunk import ROW_BYTES, ChangeChunk, Event, events_of
from taskraft_service.queue.feed.feed_partition import PartitionView

MESSAGE_ROW_BYTES: Final = 128
"""Approximate size of one encoded event, in bytes."""
COLUMNS_ROWS_MAX: Final = 20_000
"""Maximum number of events of a chunk of columns; the event loop builds one in about 6 ms."""
MESSAGES_ROWS_MAX: Final = 2_000
"""Maximum number of events of a chunk of messages; the event loop builds one in about 7 ms."""
_COLUMNS: Final = tuple(
    field.name for field in pb.ChangeColumns.DESCRIPTOR.fields if field.name != "seq"
)


def partition_messages(views: Iterable[PartitionView], caller: Caller) -> list[pb.FeedPartition]:
    """Return partitions as messages; only readers of all tubes see the sizes."""
    shows_sizes = caller.may(Verb.READ, ALL_TUBES)
    return [
        pb.FeedPartition(
            partition=view.partition,
            low_seq=view.low_seq,
            high_seq=view.high_seq,
            high_ms=view.high_ms,
            bytes=view.bytes if shows_sizes else 0,
        )
        for view in views
    ]


def rows_max(request: pb.ReadChangesRequest) -> int:
    """Return the maximum number of events of a chunk, which fit into it without their texts."""
    bytes_max = request.chunk_bytes_max or limits.CHUNK_BYTES_DEFAULT
    if request.encoding == pb.ReadChangesRequest.COLUMNS:
        return max(1, min(bytes_max // ROW_BYTES, COLUMNS_ROWS_MAX))
    return max(1, min(bytes_max // MESSAGE_ROW_BYTES, MESSAGES_ROWS_MAX))


def chunk_message(request: pb.ReadChangesRequest, chunk: ChangeChunk) -> pb.ReadChangesResponse:
    """Return a chunk of a partition in the requested encoding."""
    answer = pb.ReadChangesResponse(
        partition=chunk.partition,
        from_seq=chunk.from_seq,
        next_seq=chunk.next_seq,
        rows=chunk.rows,
    )
    if request.encoding == pb.ReadChangesRequest.COLUMNS:
        _fill_columns(answer.columns, chunk)
    else:
        answer.events.extend(_events(chunk))
    return answer


def _fill_columns(columns: pb.ChangeColumns, chunk: ChangeChunk) -> None:
    for name in _COLUMNS:
        column = getattr(chunk.columns, name)
        if isinstance(column, bytes):
            setattr(columns, name, column)
        else:
            getattr(columns, name).extend(column)
    columns.seq = chunk.columns.seq


def _events(chunk: ChangeChunk) -> Iterator[pb.ChangeEvent]:
    for seq, event in zip(_seqs(chunk), events_of(chunk.columns), strict=True):
        yield event_message(seq, event)


def event_message(seq: int, event: Event) -> pb.ChangeEvent:
    """Return an event with its sequence number as a message."""
    return pb.ChangeEvent(
        seq=seq,
        revision=event.revision,
        place=event.place,
        at_ms=event.at_ms,
        tube=event.tube,
        task_id=event.task_id,
        kind=pb.ChangeEvent.Kind.ValueType(event.kind),
        from_state=task_pb2.Task.State.ValueType(event.from_state),
        to_state=task_pb2.Task.State.ValueType(event.to_state),
        attempt=event.attempt,
        priority=event.priority,
        created_ms=event.created_ms,
        since_ms=event.since_ms,
        subqueue=event.subqueue,
        session=event.session,
        reason=event.reason,
        type=event.type,
        payload_bytes=event.payload_bytes,
        outcome=task_pb2.Task.Outcome.ValueType(event.outcome),
        message=event.message,
        fingerprint=event.fingerprint,
        target=event.target,
        attempt_failed=bool(event.attempt_failed),
    )


def _seqs(chunk: ChangeChunk) -> Sequence[int]:
    """Return the sequence numbers of a chunk's rows; without a column they are consecutive."""
    if not chunk.columns.seq:
        return range(chunk.from_seq, chunk.from_seq + chunk.rows)
    column = chunk.columns.seq
    return [
        int.from_bytes(column[place : place + 8], "little") for place in range(0, len(column), 8)
    ]
