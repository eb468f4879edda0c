"""Describe the feed, and read ranges of it completely across node failures."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc

from taskraft.v1.feed_service_pb2 import DescribeFeedRequest, ReadChangesRequest
from taskraft.v1.task_pb2 import Consistency
from taskraft_pipeline.errors import CursorTrimmed, FeedBroken, FeedMismatch, error_info

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from taskraft.v1.feed_service_pb2 import ReadChangesResponse
    from taskraft_pipeline.feed_client import FeedClient
    from taskraft_pipeline.offsets import Range

log = logging.getLogger(__name__)

CHUNK_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum chunk size of the API: about 40 000 events, which become one record batch."""
BEHIND_WAIT_MS: Final = 2_000
"""Maximum wait until a node has applied the range, in ms; after it, the next node is asked."""


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

    def reachable_at(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Return the nodes to read from: first the given nodes, then the feed's other nodes."""
        return tuple(dict.fromkeys((*given, *self.addresses)))

    def followers_first(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Return the nodes to read from, with the leader as the last one."""
        others = dict.fromkeys((*self.addresses, *given))
        others.pop(self.leader, None)
        return (*others, self.leader) if self.leader else tuple(others)

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
        is_loss_failure: bool = True,
    ) -> None:
        self._client = client
        self._feed_id = feed_id
        self._tubes = tubes
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
            encoding=ReadChangesRequest.COLUMNS,
            wait_ms=BEHIND_WAIT_MS,
            chunk_bytes_max=CHUNK_BYTES_MAX,
        )

    def _check(self, chunk: ReadChangesResponse, whole: Range, position: int) -> None:
        covered = chunk.next_seq - chunk.from_seq
        is_next = chunk.partition == whole.partition and chunk.from_seq == position
        is_inside = covered > 0 and chunk.next_seq <= whole.to_seq
        is_full = chunk.rows <= covered if self._tubes else chunk.rows == covered
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
