"""Handle ResolveTimestamp and CommitCursor: positions at a time, and cursors of consumers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from taskraft.v1 import feed_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.command_executor import CommandExecutor, result_of
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.command_codecs.commit_cursor import COMMIT_CURSOR
from taskraft_service.queue.entities.instants import in_wall_time
from taskraft_service.queue.entities.refusal import CountResult
from taskraft_service.queue.feed.feed_consumers import ConsumerView
from taskraft_service.queue.queue import Queue
from taskraft_service.turns import next_turn


class FeedPositionHandlers:
    """The handlers of ResolveTimestamp and CommitCursor."""

    def __init__(self, executor: CommandExecutor, reader: QueueReader) -> None:
        self._executor = executor
        self._reader = reader

    def methods(self) -> Sequence[AnyUnaryMethod]:
        """Return the methods ResolveTimestamp and CommitCursor."""
        return (
            UnaryMethod(
                "ResolveTimestamp", pb.ResolveTimestampRequest, ExecutionSite.ANY_NODE, self.resolve
            ),
            UnaryMethod("CommitCursor", pb.CommitCursorRequest, ExecutionSite.LEADER, self.commit),
        )

    async def resolve(
        self, call: UnaryCall[pb.ResolveTimestampRequest]
    ) -> pb.ResolveTimestampResponse:
        """Find the first event at or after a time, one partition per event loop iteration."""
        at_ms = call.request.at_ms
        violations = Violations()
        violations.check_not_negative("at_ms", at_ms)
        violations.raise_if_any()
        cursor = pb.FeedCursor(feed_id=self._reader.applied.feed.feed_id)
        for view in self._reader.applied.feed.views():
            feed = self._reader.applied.feed
            cursor.next_seq[view.partition] = feed.seq_at(view.partition, at_ms)
            await next_turn()
        return pb.ResolveTimestampResponse(cursor=cursor)

    async def commit(self, call: UnaryCall[pb.CommitCursorRequest]) -> pb.CommitCursorResponse:
        """Store the cursor of a feed consumer."""
        request = call.request
        _check(request, len(self._reader.applied.feed.views()))
        outcome = await self._executor.execute(COMMIT_CURSOR, call)
        result_of(outcome, CountResult)
        answer = pb.CommitCursorResponse(revision=outcome.index)
        queue = self._reader.applied
        view = queue.consumer(request.consumer)
        if view is not None:
            answer.cursor.CopyFrom(consumer_message(queue, view).cursor)
        return answer


def consumer_message(queue: Queue, view: ConsumerView) -> pb.FeedConsumer:
    """Return a feed consumer as a message."""
    return pb.FeedConsumer(
        name=view.name,
        cursor=pb.FeedCursor(feed_id=queue.feed.feed_id, next_seq=view.next_seq),
        committed_ms=in_wall_time(view.committed_ms, queue.wall_offset_ms),
        idle_ttl_ms=view.idle_ttl_ms,
    )


def encode_consumers(queue: Queue, views: Iterable[ConsumerView]) -> bytes:
    """Return feed consumers as a part of an encoded DescribeFeedResponse."""
    consumers = [consumer_message(queue, view) for view in views]
    return pb.DescribeFeedResponse(consumers=consumers).SerializeToString()


def check_cursor(violations: Violations, cursor: pb.FeedCursor, partitions: int) -> None:
    """Check that a cursor names only existing partitions and valid positions."""
    for partition, seq in sorted(cursor.next_seq.items()):
        field = f"cursor.next_seq[{partition}]"
        violations.check_range(field, partition, 0, partitions - 1)
        violations.check_not_negative(field, seq)


def _check(request: pb.CommitCursorRequest, partitions: int) -> None:
    """Check a cursor to be stored."""
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    violations.check_name("consumer", request.consumer)
    violations.check_range("idle_ttl_ms", request.idle_ttl_ms, 0, limits.CONSUMER_IDLE_TTL_MAX_MS)
    check_cursor(violations, request.cursor, partitions)
    violations.raise_if_any()
