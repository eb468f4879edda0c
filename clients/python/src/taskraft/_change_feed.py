"""Read the change feed: one event per task transition."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

import grpc

from taskraft import errors
from taskraft._error_translation import from_rpc_error
from taskraft._message_fields import choices_of
from taskraft._stream_retries import StreamRetries
from taskraft.v1 import feed_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from taskraft._connection import Connection
    from taskraft._durations import Duration

_Content: Final = feed_service_pb2.ReadChangesRequest.Content
CONTENTS: Final = choices_of(_Content)
"""Parts of tasks that events can carry, by their names in lower case."""
CHUNKS_WAITING_MAX: Final = 16
"""Maximum number of chunks that wait for a slow reader; then the streams pause."""


async def describe_feed(
    connection: Connection, timeout: Duration | None = None
) -> feed_service_pb2.DescribeFeedResponse:
    """Return the id of the feed, its partitions and the range of events in each."""
    return await connection.call(
        lambda node: node.feed.DescribeFeed,
        feed_service_pb2.DescribeFeedRequest(),
        timeout=timeout,
    )


async def read_partition(
    connection: Connection, request: feed_service_pb2.ReadChangesRequest, seconds_max: float
) -> AsyncIterator[feed_service_pb2.ReadChangesResponse]:
    """Yield the chunks of one partition in order, and reconnect after failures.

    Args:
        connection: connection to the cluster.
        request: the first request.
        seconds_max: maximum time without a chunk, in seconds, retries included; `math.inf`: no
            limit.

    Raises:
        CursorTrimmed: retention has removed the requested events.
        FeedMismatch: the nodes serve another feed.
        TaskraftError: the last error, after the maximum time without a chunk.
    """
    position = feed_service_pb2.ReadChangesRequest()
    position.CopyFrom(request)
    retries = StreamRetries(seconds_max)
    while not _is_read(position):
        connection.check_usable()
        node = connection.nodes.next_node()
        error: errors.TaskraftError = errors.Unavailable("the server ended the stream")
        call = node.feed.ReadChanges(position)
        try:
            while (piece := await retries.read(call, node.address, is_limited=True)) is not None:
                position.from_seq = piece.next_seq
                yield piece
                retries.progressed()
        except grpc.aio.AioRpcError as raised:
            error = from_rpc_error(raised, node.address)
        finally:
            call.cancel()
        if _is_read(position):
            return
        await retries.pause(error, len(connection.nodes.selector.addresses))
        connection.nodes.selector.report_failure(node.address, is_unreachable=True)


def _is_read(position: feed_service_pb2.ReadChangesRequest) -> bool:
    """Return whether all requested events were read."""
    return bool(position.to_seq) and position.from_seq >= position.to_seq


class _PartitionReaders:
    """The asyncio tasks that read the partitions; the client cancels them when it closes."""

    def __init__(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        self._tasks = tasks

    async def close(self) -> None:
        """Cancel the readers and wait for them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def tail(  # noqa: PLR0913 - one argument for each option
    connection: Connection,
    *,
    tubes: Sequence[str] = (),
    kinds: Sequence[str] = (),
    contents: Sequence[int] = (),
    is_from_start: bool = False,
    cursor: Mapping[int, int] | None = None,
    follow: bool = True,
    timeout: Duration | None = None,
) -> AsyncIterator[feed_service_pb2.ChangeEvent]:
    """Yield the events of all partitions; the order holds within each partition.

    Args:
        connection: connection to the cluster.
        tubes: names of tubes; empty: all.
        kinds: kinds of events; empty: all.
        contents: parts of the tasks that the events carry, as in `CONTENTS`.
        is_from_start: start at the oldest event that is kept, instead of now.
        cursor: first sequence number by partition, instead of `is_from_start`.
        follow: wait for new events, instead of stopping at the current end.
        timeout: time limit of the call for the partitions, and without `follow` maximum time
            without a chunk, retries included.
    """
    feed = await describe_feed(connection, timeout)
    seconds_max = math.inf if follow else connection.limit_seconds(timeout)
    waiting: asyncio.Queue[feed_service_pb2.ReadChangesResponse | BaseException | None]
    waiting = asyncio.Queue(CHUNKS_WAITING_MAX)

    async def read(partition: feed_service_pb2.FeedPartition) -> None:
        start = partition.low_seq if is_from_start else partition.high_seq
        request = feed_service_pb2.ReadChangesRequest(
            feed_id=feed.feed_id,
            partition=partition.partition,
            from_seq=(cursor or {}).get(partition.partition, start),
            to_seq=0 if follow else partition.high_seq,
            tubes=tubes,
            kinds=[feed_service_pb2.ChangeEvent.Kind.Value(kind) for kind in kinds],
            contents=[_Content.ValueType(part) for part in contents],
        )
        try:
            if follow or request.from_seq < request.to_seq:
                async for piece in read_partition(connection, request, seconds_max):
                    await waiting.put(piece)
            await waiting.put(None)
        except Exception as error:  # noqa: BLE001 - re-raised by the consumer of the queue
            await waiting.put(error)

    readers = _PartitionReaders(
        [asyncio.create_task(read(partition)) for partition in feed.partitions]
    )
    connection.register(readers)
    try:
        open_readers = len(feed.partitions)
        while open_readers:
            piece = await waiting.get()
            if isinstance(piece, BaseException):
                raise piece
            if piece is None:
                open_readers -= 1
                continue
            for event in piece.events:
                yield event
    finally:
        connection.unregister(readers)
        await readers.close()
