"""Serve FeedService: any node reads what it has applied, and never beyond.

Chunks are made one at a time and written before the next is made, so a slow reader holds nothing up
and the event loop is given back after each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from service import limits
from service.access.caller import Caller
from service.access.rights import Verb
from service.api.context import ServicerContext
from service.api.feed_positions import FeedPositions, check_cursor, consumer_message
from service.api.method import Call, Route, Servicer, Unary, parse
from service.api.reading import Reading
from service.api.status import Refused
from service.api.violations import Violations
from service.config.addresses import PeerAddress
from service.machine.applications import Applications
from service.queue.feed.chunk import ROW_BYTES, ChangeChunk, events_of, only
from service.queue.feed.partitions import Feed, PartitionView
from service.queue.queue import Queue
from taskraft.v1 import error_pb2, task_pb2
from taskraft.v1 import feed_service_pb2 as pb

SERVICE: Final = pb.DESCRIPTOR.services_by_name["FeedService"]
MESSAGE_ROW_BYTES: Final = 128
"""About what one event has as a message of its own."""
FOR_EVER: Final = 2**63 - 1
_KINDS: Final = frozenset(pb.ChangeEvent.Kind.values()) - {pb.ChangeEvent.KIND_UNSPECIFIED}
_COLUMNS: Final = tuple(
    field.name for field in pb.ChangeColumns.DESCRIPTOR.fields if field.name != "seq"
)


def _partition(view: PartitionView) -> pb.FeedPartition:
    return pb.FeedPartition(
        partition=view.partition,
        low_seq=view.low_seq,
        high_seq=view.high_seq,
        high_ms=view.high_ms,
        bytes=view.bytes,
    )


class FeedApi:
    """The handlers of FeedService.

    Args:
        positions: serves the calls about positions.
        reading: gives out the queue.
        applications: tells when more has been applied.
        nodes: returns the members, the leader first known by ``leader_name``.
        leader_name: who leads; empty while nobody is known to.
    """

    def __init__(
        self,
        positions: FeedPositions,
        reading: Reading,
        applications: Applications,
        nodes: Callable[[], Sequence[PeerAddress]],
        leader_name: Callable[[], str],
    ) -> None:
        self._positions = positions
        self._reading = reading
        self._applications = applications
        self._nodes = nodes
        self._leader_name = leader_name

    def servicer(self) -> Servicer:
        """Return the methods of the service."""
        return Servicer(
            SERVICE,
            (
                Unary(
                    "DescribeFeed",
                    pb.DescribeFeedRequest,
                    Route.FRESH,
                    self.describe_feed,
                    lambda request: self._reading.is_local(request.consistency),
                ),
                Unary("WatchFeed", pb.WatchFeedRequest, Route.HERE, self.watch_feed),
                *self._positions.methods(),
            ),
            streams={},
            readings={"ReadChanges": self.read_changes},
        )

    async def describe_feed(self, call: Call[pb.DescribeFeedRequest]) -> pb.DescribeFeedResponse:
        """Describe the partitions and who serves them."""
        wrong = Violations()
        wrong.consistency(call.request.consistency)
        wrong.raise_any()
        queue = await self._reading.queue(call.request.consistency)
        leader = self._leader_name()
        return pb.DescribeFeedResponse(
            feed_id=queue.feed.feed_id,
            revision=queue.applied_index,
            partitions=[_partition(view) for view in queue.feed.views()],
            nodes=[
                pb.FeedNode(name=node.name, address=node.client_address, leader=node.name == leader)
                for node in self._nodes()
            ],
            now_ms=queue.now_ms,
            consumers=[
                consumer_message(queue, view)
                for view in queue.consumers()
                if call.caller.may(Verb.READ, view.name)
            ],
        )

    async def watch_feed(self, call: Call[pb.WatchFeedRequest]) -> pb.WatchFeedResponse:
        """Wait until a partition holds more than the caller knows."""
        request = call.request
        wrong = Violations()
        wrong.in_range("wait_ms", request.wait_ms, 0, limits.WAIT_MAX_MS)
        check_cursor(wrong, request.cursor, len(self._reading.applied.feed.views()))
        wrong.raise_any()
        _same_feed(self._reading.applied, request.cursor.feed_id)
        known = dict(request.cursor.next_seq)

        def is_news() -> bool:
            views = self._reading.applied.feed.views()
            return any(view.high_seq > known.get(view.partition, 0) for view in views)

        wait = request.wait_ms / 1000
        if call.deadline is not None:
            left = call.deadline - asyncio.get_running_loop().time()
            wait = min(wait, left - limits.DEADLINE_MARGIN_MS / 1000)
        await self._applications.wait_for(is_news, wait)
        views = self._reading.applied.feed.views()
        return pb.WatchFeedResponse(partitions=[_partition(view) for view in views])

    # ------------------------------------------------------------------------------ reading

    async def read_changes(self, raw: bytes, context: ServicerContext, caller: Caller) -> None:
        """Stream a range of one partition, or follow it for ever."""
        request = parse(pb.ReadChangesRequest, raw)
        caller.check(request)
        self._check(request)
        rows_max = _rows_max(request)
        at = request.from_seq
        stop = request.to_seq or FOR_EVER
        await self._arrival(request, at)
        while at < stop:
            if self._applications.ended:
                raise Refused(error_pb2.Error.DRAINING, "this node is stopping")
            if caller.is_limited:
                caller.confirm()
                caller.check(request)
            chunk = self._next_chunk(request, at, stop, rows_max)
            if chunk is None:
                following = at

                def is_news(following: int = following) -> bool:
                    feed = self._reading.applied.feed
                    return feed.views()[request.partition].high_seq > following

                if request.to_seq:
                    # Everything that this node has applied was sent; it does not have the rest.
                    await self._arrival(request, at)
                else:
                    await self._applications.wait_for(is_news, limits.WAIT_MAX_MS / 1000)
                continue
            await context.write(_answer(request, chunk).SerializeToString())
            at = chunk.next_seq

    def _check(self, request: pb.ReadChangesRequest) -> None:
        wrong = Violations()
        wrong.not_negative("from_seq", request.from_seq)
        wrong.not_negative("to_seq", request.to_seq)
        wrong.in_range("wait_ms", request.wait_ms, 0, limits.WAIT_MAX_MS)
        if request.chunk_bytes_max:
            low, high = limits.CHUNK_BYTES_MIN, limits.CHUNK_BYTES_MAX
            wrong.in_range("chunk_bytes_max", request.chunk_bytes_max, low, high)
        wrong.choice("encoding", request.encoding, pb.ReadChangesRequest.Encoding.values())
        wrong.at_most("tubes", request.tubes, limits.NAMES_MAX)
        wrong.at_most("kinds", request.kinds, limits.NAMES_MAX)
        for place, name in enumerate(request.tubes):
            wrong.tube(f"tubes[{place}]", name)
        for place, kind in enumerate(request.kinds):
            wrong.choice(f"kinds[{place}]", kind, _KINDS)
        queue = self._reading.applied
        wrong.in_range("partition", request.partition, 0, len(queue.feed.views()) - 1)
        if 0 < request.to_seq < request.from_seq:
            wrong.add("to_seq", f"{request.to_seq} is before from_seq")
        wrong.raise_any()
        _same_feed(queue, request.feed_id)

    async def _arrival(self, request: pb.ReadChangesRequest, at: int) -> None:
        """Wait until this node has what is asked for next, as long as the caller allows.

        Raises:
            Refused: NODE_BEHIND: it did not come in time.
        """

        def high() -> int:
            return self._reading.applied.feed.views()[request.partition].high_seq

        nothing_more = request.to_seq and at >= request.to_seq
        if high() > at or nothing_more or (not request.to_seq and high() == at):
            return
        if not await self._applications.wait_for(lambda: high() > at, request.wait_ms / 1000):
            raise Refused(
                error_pb2.Error.NODE_BEHIND,
                f"this node has applied events up to {high()} only",
                {"partition": str(request.partition), "high": str(high())},
            )

    def _next_chunk(
        self, request: pb.ReadChangesRequest, at: int, stop: int, rows_max: int
    ) -> ChangeChunk | None:
        """Return the next piece; None when there is nothing more yet."""
        feed: Feed = self._reading.applied.feed
        low = feed.views()[request.partition].low_seq
        if at < low:
            raise Refused(
                error_pb2.Error.CURSOR_TRIMMED,
                f"events below {low} were removed by retention",
                {"partition": str(request.partition), "low": str(low)},
            )
        chunk = next(iter(feed.read(request.partition, at, stop, rows_max)), None)
        if chunk is None:
            return None
        return only(chunk, request.tubes, frozenset(request.kinds))


def _same_feed(queue: Queue, feed_id: str) -> None:
    if feed_id and feed_id != queue.feed.feed_id:
        raise Refused(
            error_pb2.Error.FEED_MISMATCH,
            "the position belongs to another feed",
            {"feed_id": queue.feed.feed_id},
        )


def _rows_max(request: pb.ReadChangesRequest) -> int:
    """Return how many rows one chunk may have so that it keeps its size, texts aside."""
    columns = request.encoding == pb.ReadChangesRequest.COLUMNS
    row_bytes = ROW_BYTES if columns else MESSAGE_ROW_BYTES
    return max(1, (request.chunk_bytes_max or limits.CHUNK_BYTES_DEFAULT) // row_bytes)


def _answer(request: pb.ReadChangesRequest, chunk: ChangeChunk) -> pb.ReadChangesResponse:
    answer = pb.ReadChangesResponse(
        partition=chunk.partition,
        from_seq=chunk.from_seq,
        next_seq=chunk.next_seq,
        rows=chunk.rows,
    )
    if request.encoding == pb.ReadChangesRequest.COLUMNS:
        for name in _COLUMNS:
            column = getattr(chunk.columns, name)
            if isinstance(column, bytes):
                setattr(answer.columns, name, column)
            else:
                getattr(answer.columns, name).extend(column)
        answer.columns.seq = chunk.columns.seq
        return answer
    seqs = _seqs(chunk)
    for seq, event in zip(seqs, events_of(chunk.columns), strict=True):
        answer.events.add(
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
        )
    return answer


def _seqs(chunk: ChangeChunk) -> Sequence[int]:
    """Return the sequence numbers of a chunk's rows; without a column they are dense."""
    if not chunk.columns.seq:
        return range(chunk.from_seq, chunk.from_seq + chunk.rows)
    column = chunk.columns.seq
    return [
        int.from_bytes(column[place : place + 8], "little") for place in range(0, len(column), 8)
    ]
