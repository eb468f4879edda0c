"""Describe the feed, and read ranges of it completely across node failures."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc

from taskraft.v1.feed_service_pb2 import ChangeEvent, DescribeFeedRequest, ReadChangesRequest
from taskraft.v1.task_pb2 import Consistency
from taskraft_pipeline.errors import CursorTrimmed, FeedBroken, FeedMismatch, error_info
from taskraft_pipeline.schema import arrays_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from taskraft.v1.feed_service_pb2 import ReadChangesResponse
    from taskraft_pipeline.feed_client import FeedClient
    from taskraft_pipeline.offsets import Range

log = logging.getLogger(__name__)

CHUNK_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum size of a chunk in bytes, by the API. A node also limits a chunk to 20 000 events."""
BEHIND_WAIT_MS: Final = 2_000
"""Maximum wait until a node has applied the range, in ms; after it, the next node is asked."""


@dataclass(slots=True, frozen=True)
class FeedNodes:
    """The nodes that serve a feed.

    Attributes:
        addresses: addresses of the nodes, not empty.
        leader: address of the leader; empty if no leader is known.
    """

    addresses: tuple[str, ...]
    leader: str = ""

    def for_task(self, number: int) -> tuple[str, ...]:
        """Return the nodes in the order in which a Spark task tries them.

        The tasks spread over the followers. The leader is last, so that reads do not delay writes.
        """
        others = [address for address in self.addresses if address != self.leader]
        last = [self.leader] if self.leader in self.addresses else []
        first = number % max(len(others), 1)
        return (*others[first:], *others[:first], *last)


@dataclass(slots=True, frozen=True)
class Feed:
    """State of the feed at the time of the call.

    Attributes:
        feed_id: id of the feed.
        low: oldest sequence number that is kept, by partition.
        high: next sequence number, by partition.
        addresses: client addresses of the nodes.
        leader: client address of the leader; empty if no leader is known.
        now_ms: time of the cluster's clock.
    """

    feed_id: str
    low: Mapping[int, int]
    high: Mapping[int, int]
    addresses: tuple[str, ...]
    leader: str
    now_ms: int

    def nodes(self, given: tuple[str, ...]) -> FeedNodes:
        """Return the nodes to read from: first the given nodes, then the feed's other nodes."""
        return FeedNodes(tuple(dict.fromkeys((*given, *self.addresses))), self.leader)

    def check(self, feed_id: str) -> None:
        """Raise FeedMismatch if a position belongs to another feed."""
        if feed_id != self.feed_id:
            raise FeedMismatch(
                f"FEED_MISMATCH: the position belongs to feed {feed_id}, but the nodes serve"
                f" {self.feed_id}"
            )


def describe(client: FeedClient, *, is_linearizable: bool) -> Feed:
    """Ask for the current range of the feed.

    Args:
        client: sends the call.
        is_linearizable: True: the answer includes all writes acknowledged before the call. False:
            the answer shows the state that the called node has applied, without a call to the
            leader.
    """
    level = Consistency.LINEARIZABLE if is_linearizable else Consistency.LOCAL
    request = DescribeFeedRequest(consistency=Consistency(level=level))
    answer = client.call(lambda stub, seconds: stub.DescribeFeed(request, timeout=seconds))
    return Feed(
        feed_id=answer.feed_id,
        low={one.partition: one.low_seq for one in answer.partitions},
        high={one.partition: one.high_seq for one in answer.partitions},
        addresses=tuple(node.address for node in answer.nodes if node.address),
        leader=next((node.address for node in answer.nodes if node.leader), ""),
        now_ms=answer.now_ms,
    )


class RangeReader:
    """Reads ranges chunk by chunk, and continues on another node after a failure.

    Each chunk must begin where the previous chunk ended, and the range must be covered to its end.
    A slow, faulty or dead node can therefore delay or fail a read, but never cause a gap.

    Args:
        tubes: only events of these tubes; the server filters. Empty: all.
        kinds: only events of these kinds, such as "take"; the server filters. Empty: all.
        columns: columns of the schema that the chunks contain. Empty: all.
        is_loss_failure: fail if retention has removed events of a range.

    Attributes:
        events_lost: number of events that retention removed before they were read; always 0 if
            ``is_loss_failure`` is set.
    """

    def __init__(
        self,
        client: FeedClient,
        feed_id: str,
        *,
        tubes: tuple[str, ...] = (),
        kinds: tuple[str, ...] = (),
        columns: tuple[str, ...] = (),
        is_loss_failure: bool = True,
    ) -> None:
        self._client = client
        self._feed_id = feed_id
        self._tubes = tubes
        self._kinds = [ChangeEvent.Kind.Value(kind.upper()) for kind in kinds]
        self._arrays = arrays_of(columns)
        self._is_loss_failure = is_loss_failure
        self.events_lost = 0

    def read(self, whole: Range) -> Iterator[ReadChangesResponse]:
        """Yield the chunks of a range.

        Raises:
            CursorTrimmed: retention has removed a part of the range.
            FeedBroken: a node sent an invalid answer.
            FeedMismatch, FeedRefused, FeedUnreachable: see `FeedClient.handle_failure`.
        """
        position = whole.from_seq
        while position < whole.to_seq:
            try:
                for chunk in self._client.stub().ReadChanges(
                    self._request(whole, position), timeout=self._client.timeout_seconds
                ):
                    self._check(chunk, whole, position)
                    position = chunk.next_seq
                    self._client.reset_failures()
                    yield chunk
            except grpc.RpcError as error:
                position = self._after(error, whole, position)
            else:
                if position != whole.to_seq:
                    raise FeedBroken(f"{whole}: the node ended the range early, at {position}")

    def _request(self, whole: Range, from_seq: int) -> ReadChangesRequest:
        return ReadChangesRequest(
            feed_id=self._feed_id,
            partition=whole.partition,
            from_seq=from_seq,
            to_seq=whole.to_seq,
            tubes=self._tubes,
            kinds=self._kinds,
            columns=self._arrays,
            encoding=ReadChangesRequest.COLUMNS,
            wait_ms=BEHIND_WAIT_MS,
            chunk_bytes_max=CHUNK_BYTES_MAX,
        )

    def _check(self, chunk: ReadChangesResponse, whole: Range, position: int) -> None:
        covered = chunk.next_seq - chunk.from_seq
        is_next = chunk.partition == whole.partition and chunk.from_seq == position
        is_inside = covered > 0 and chunk.next_seq <= whole.to_seq
        is_filtered = bool(self._tubes or self._kinds)
        is_full = chunk.rows <= covered if is_filtered else chunk.rows == covered
        if not (is_next and is_inside and is_full):
            raise FeedBroken(
                f"{whole}: expected events from {position}, got partition {chunk.partition} from"
                f" {chunk.from_seq} to {chunk.next_seq} with {chunk.rows} events"
            )

    def _after(self, error: grpc.RpcError, whole: Range, position: int) -> int:
        """Return the position at which to continue after a failed call."""
        reason, metadata = error_info(error)
        if reason != "CURSOR_TRIMMED":
            self._client.handle_failure(error)
            return position
        if self._is_loss_failure:
            raise CursorTrimmed(trimmed_text(whole.partition, position, metadata)) from error
        low = int(metadata.get("low", whole.to_seq))
        if low <= position:
            raise FeedBroken(
                f"{whole}: the node reports {position} as trimmed, but its oldest event is {low}"
            ) from error
        after = min(low, whole.to_seq)
        self.events_lost += after - position
        log.warning("partition %s: %s events were trimmed", whole.partition, after - position)
        return after


def trimmed_text(partition: int, position: int, metadata: Mapping[str, object]) -> str:
    """Return the message for events that retention removed before they were read."""
    return (
        f"CURSOR_TRIMMED: retention has removed event {position} of partition {partition}, which"
        f" now begins at {metadata.get('low', '?')}; set failOnDataLoss=false (taskraft pipeline"
        " export: -o failOnDataLoss=false) to continue without the lost events"
    )
