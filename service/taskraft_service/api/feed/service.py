"""FeedService: any node serves the part of the change feed that it has applied.

A stream builds one chunk at a time, and writes the chunk before it builds the next chunk. A slow
reader therefore uses memory for one chunk only, and the event loop runs other work after each
chunk. All streams together take at most half of the event loop's time (``ReadPace``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from taskraft.v1 import error_pb2
from taskraft.v1 import feed_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.access.caller import Caller
from taskraft_service.access.permissions import Verb
from taskraft_service.api.feed.answers import chunk_message, partition_messages, rows_max
from taskraft_service.api.feed.event_content import ROWS_MAX, add_contents
from taskraft_service.api.feed.positions import FeedPositionHandlers, check_cursor, encode_consumers
from taskraft_service.api.feed.read_checks import check_read, check_same_feed
from taskraft_service.api.feed.read_pace import ReadPace
from taskraft_service.api.feed.task_events import TaskEventsHandler
from taskraft_service.api.rpc.answer_bytes import reserve_answer
from taskraft_service.api.rpc.methods import (
    AnyUnaryMethod,
    ExecutionSite,
    MessageStream,
    ServiceMethods,
    UnaryCall,
    UnaryMethod,
    parse_request,
)
from taskraft_service.api.rpc.request_steps import MESSAGE_STEPS
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.machine.feed_waits import FeedWaits
from taskraft_service.queue.feed.change_feed import ChangeFeed
from taskraft_service.queue.feed.chunk import ChangeChunk, only, with_columns

SERVICE: Final = pb.DESCRIPTOR.services_by_name["FeedService"]
POSITIONS_PER_STEP: Final = 2
"""Number of positions of a feed consumer that are copied in one step of a request."""
POSITION_BYTES: Final = 16
"""Maximum size of one encoded position of a feed consumer."""
NO_END: Final = 2**63 - 1


class SnapshotHandlers(Protocol):
    """The handlers of OpenTaskSnapshot and ReadTaskSnapshot."""

    def method(self) -> AnyUnaryMethod:
        """Return the method OpenTaskSnapshot."""

    async def read(self, raw: bytes, stream: MessageStream, caller: Caller) -> None:
        """Handle ReadTaskSnapshot."""


class FeedService:
    """The methods of FeedService.

    Args:
        positions: the handlers of positions and cursors.
        task_events: the handler of the events of one task.
        snapshots: the handlers of snapshots of all tasks.
        reader: reads the queue.
        waits: lets readers wait for events.
        nodes: returns the members of the cluster; none of them leads while no leader is known.
        pace: spreads the work of reads over time.
    """

    def __init__(
        self,
        positions: FeedPositionHandlers,
        task_events: TaskEventsHandler,
        snapshots: SnapshotHandlers,
        reader: QueueReader,
        waits: FeedWaits,
        nodes: Callable[[], Sequence[pb.FeedNode]],
        pace: ReadPace,
    ) -> None:
        self._positions = positions
        self._task_events = task_events
        self._snapshots = snapshots
        self._reader = reader
        self._waits = waits
        self._nodes = nodes
        self._pace = pace

    def methods(self) -> ServiceMethods:
        """Return the methods of FeedService."""
        return ServiceMethods(
            SERVICE,
            (
                UnaryMethod(
                    "DescribeFeed",
                    pb.DescribeFeedRequest,
                    ExecutionSite.BY_CONSISTENCY,
                    self.describe_feed,
                    lambda request: self._reader.is_local(request.consistency),
                ),
                UnaryMethod(
                    "WatchFeed", pb.WatchFeedRequest, ExecutionSite.ANY_NODE, self.watch_feed
                ),
                *self._positions.methods(),
                self._task_events.method(),
                self._snapshots.method(),
            ),
            bidirectional={},
            server_streaming={
                "ReadChanges": self.read_changes,
                "ReadTaskSnapshot": self._snapshots.read,
            },
        )

    async def describe_feed(self, call: UnaryCall[pb.DescribeFeedRequest]) -> bytes:
        """Describe the partitions, the consumers, and the nodes that serve the feed.

        The consumers are encoded in slices, because their positions can have 16 MB.
        """
        violations = Violations()
        violations.check_consistency(call.request.consistency)
        violations.raise_if_any()
        queue = await self._reader.queue(call.request.consistency)
        answer = pb.DescribeFeedResponse(
            feed_id=queue.feed.feed_id,
            revision=queue.applied_index,
            partitions=partition_messages(queue.feed.views(), call.caller),
            nodes=self._nodes(),
            now_ms=queue.now_ms + queue.wall_offset_ms,
        )
        parts = [answer.SerializeToString()]
        consumers, partitions = queue.consumer_names(), len(queue.feed.partitions)
        await reserve_answer(len(consumers) * partitions * POSITION_BYTES)
        steps_each = MESSAGE_STEPS + partitions // POSITIONS_PER_STEP
        async for names in call.steps.slices(consumers, steps_each):
            queue = self._reader.applied
            readable = [name for name in names if call.caller.may(Verb.READ, name)]
            views = map(queue.consumer, readable)
            parts.append(encode_consumers(queue, [one for one in views if one]))
        return b"".join(parts)

    async def watch_feed(self, call: UnaryCall[pb.WatchFeedRequest]) -> pb.WatchFeedResponse:
        """Wait until a partition has events after the caller's cursor."""
        request = call.request
        violations = Violations()
        violations.check_not_negative("wait_ms", request.wait_ms)
        partitions = len(self._reader.applied.feed.partitions)
        check_cursor(violations, request.cursor, partitions)
        violations.raise_if_any()
        check_same_feed(self._reader.applied, request.cursor.feed_id)
        known = dict(request.cursor.next_seq)
        positions = [known.get(partition, 0) for partition in range(partitions)]
        wait = min(request.wait_ms, limits.WAIT_MAX_MS) / 1000
        if call.deadline is not None:
            left = call.deadline - asyncio.get_running_loop().time()
            wait = min(wait, left - limits.DEADLINE_MARGIN_MS / 1000)
        await self._waits.wait_for_any(positions, wait)
        views = self._reader.applied.feed.views()
        return pb.WatchFeedResponse(partitions=partition_messages(views, call.caller))

    # ------------------------------------------------------------------------------ reading

    async def read_changes(self, raw: bytes, stream: MessageStream, caller: Caller) -> None:
        """Stream a range of one partition, or follow the partition without end."""
        request = parse_request(pb.ReadChangesRequest, raw)
        caller.authorize(request)
        check_read(request, self._reader.applied)
        at = request.from_seq
        stop = request.to_seq or NO_END
        await self._wait_for_event(request, at)
        while at < stop:
            if self._waits.ended:
                raise CallRefused(error_pb2.Error.DRAINING, "this node is stopping")
            await self._pace.wait()
            with self._pace.work():
                found = self._next_message(request, at, stop)
            if found is not None:
                message, at = found
                await stream.write(message)
            elif request.to_seq:
                # This node has sent everything that it has applied; wait for the rest of the range.
                await self._wait_for_event(request, at)
            else:
                await self._waits.wait_for(request.partition, at, limits.WAIT_MAX_MS / 1000)

    def _high_seq(self, partition: int) -> int:
        return self._reader.applied.feed.partitions[partition].high_seq

    async def _wait_for_event(self, request: pb.ReadChangesRequest, at: int) -> None:
        """Wait until this node has applied the next requested event, or the caller's wait ends.

        Raises:
            CallRefused: NODE_BEHIND, the event was not applied in time.
        """
        partition, high = request.partition, self._high_seq(request.partition)
        nothing_more = request.to_seq and at >= request.to_seq
        if high > at or nothing_more or (not request.to_seq and high == at):
            return
        wait_ms = min(request.wait_ms, limits.WAIT_MAX_MS)
        if not await self._waits.wait_for(partition, at, wait_ms / 1000):
            high = self._high_seq(partition)
            raise CallRefused(
                error_pb2.Error.NODE_BEHIND,
                f"this node has applied events only up to {high}; retry or ask another node",
                {"partition": str(partition), "high": str(high)},
            )

    def _next_message(
        self, request: pb.ReadChangesRequest, at: int, stop: int
    ) -> tuple[bytes, int] | None:
        """Return the message of the next chunk and the position after it; None if there is none.

        Names and texts have any length, so the size is known only after encoding. A message above
        the requested size is cut to fewer events. A message has at least one event, because the
        reader could otherwise never pass a large event.
        """
        rows = min(rows_max(request), ROWS_MAX) if request.contents else rows_max(request)
        bytes_max = request.chunk_bytes_max or limits.CHUNK_BYTES_DEFAULT
        while True:
            chunk = self._next_chunk(request, at, stop, rows)
            if chunk is None:
                return None
            answer = chunk_message(request, chunk)
            if request.contents:
                add_contents(answer, self._reader.applied, request.contents, bytes_max)
                return answer.SerializeToString(), answer.next_seq
            message = answer.SerializeToString()
            covered = chunk.next_seq - chunk.from_seq
            if len(message) <= bytes_max or covered == 1:
                return message, chunk.next_seq
            rows = max(1, covered * bytes_max // len(message))

    def _next_chunk(
        self, request: pb.ReadChangesRequest, at: int, stop: int, rows_max: int
    ) -> ChangeChunk | None:
        """Return the next chunk; None if there are no further events yet."""
        feed: ChangeFeed = self._reader.applied.feed
        low = feed.views()[request.partition].low_seq
        if at < low:
            raise CallRefused(
                error_pb2.Error.CURSOR_TRIMMED,
                f"retention removed the events below {low}; continue from {low}",
                {"partition": str(request.partition), "low": str(low)},
            )
        chunk = next(iter(feed.read(request.partition, at, stop, rows_max)), None)
        if chunk is None:
            return None
        found = only(chunk, frozenset(request.tubes), frozenset(request.kinds))
        return with_columns(found, frozenset(request.columns))
