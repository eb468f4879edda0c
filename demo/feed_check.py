"""Read the whole change feed, and check every transition of every task.

The reader uses only the generated stubs. The check replays the history of each task, so it does not
depend on the code of the queue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import grpc

from taskraft.v1 import feed_service_pb2, feed_service_pb2_grpc, task_pb2

Kind = feed_service_pb2.ChangeEvent.Kind
State = task_pb2.Task.State
READ_TIMEOUT_S = 60


class FeedBroken(Exception):
    """The feed has a gap, or a partition ends early; the message says where."""


def read_feed(address: str) -> Iterator[feed_service_pb2.ChangeEvent]:
    """Yield every event of every partition; partitions are in order.

    Raises:
        FeedBroken: the sequence numbers of a partition have a gap or do not start at 0.
    """
    with grpc.insecure_channel(address) as channel:
        feed = feed_service_pb2_grpc.FeedServiceStub(channel)
        described = feed.DescribeFeed(
            feed_service_pb2.DescribeFeedRequest(), timeout=READ_TIMEOUT_S
        )
        for partition in described.partitions:
            yield from _events(feed, described.feed_id, partition)


def _events(
    feed: feed_service_pb2_grpc.FeedServiceStub,
    feed_id: str,
    partition: feed_service_pb2.FeedPartition,
) -> Iterator[feed_service_pb2.ChangeEvent]:
    """Yield the events of one partition, and check that none is missing."""
    number, high_seq = partition.partition, partition.high_seq
    if not high_seq:
        return  # a read without an upper end never stops
    request = feed_service_pb2.ReadChangesRequest(
        feed_id=feed_id, partition=number, to_seq=high_seq
    )
    expected = 0
    for piece in feed.ReadChanges(request, timeout=READ_TIMEOUT_S):
        for event in piece.events:
            if event.seq != expected:
                raise FeedBroken(f"partition {number}: event {event.seq} follows {expected - 1}")
            expected += 1
            yield event
    if expected != high_seq:
        raise FeedBroken(f"partition {number} ends at {expected} instead of {high_seq}")


@dataclass(slots=True, frozen=True)
class FeedCheck:
    """Result of checking the change feed of one tube."""

    put: int
    processed: int
    """Number of tasks that were put once and acknowledged once."""
    lost: Collection[int]
    """Tasks that were put and not acknowledged."""
    held_twice: Collection[int]
    """Tasks that were taken while they were TAKEN."""
    inconsistent: Collection[int]
    """Tasks with an event that does not start from the previous state."""
    released: int
    """Number of leases that ended without an acknowledgement."""
    events: int

    @property
    def is_clean(self) -> bool:
        """Return whether the check found no error."""
        return not (self.lost or self.held_twice or self.inconsistent)


class _TaskHistories:
    """Current states of the tasks of a tube, replayed from events."""

    def __init__(self) -> None:
        self.states: dict[int, int] = {}
        self.acknowledged: set[int] = set()
        self.held_twice: set[int] = set()
        self.inconsistent: set[int] = set()
        self.released = 0
        self.events = 0

    def apply(self, event: feed_service_pb2.ChangeEvent) -> None:
        """Apply one transition to the state of its task."""
        task_id, before = event.task_id, self.states.get(event.task_id)
        self.events += 1
        is_first = event.kind == Kind.PUT
        if (before is None) != is_first or (before is not None and before != event.from_state):
            self.inconsistent.add(task_id)
        if event.kind == Kind.TAKE and before == State.TAKEN:
            self.held_twice.add(task_id)
        if event.kind == Kind.ACK:
            if before != State.TAKEN or task_id in self.acknowledged:
                self.inconsistent.add(task_id)
            self.acknowledged.add(task_id)
        elif event.from_state == State.TAKEN and event.to_state != State.TAKEN:
            self.released += 1
        self.states[task_id] = event.to_state


def check_feed(tube: str, events: Iterable[feed_service_pb2.ChangeEvent]) -> FeedCheck:
    """Check the histories of all tasks of a tube; ``events`` are in order for each task."""
    histories = _TaskHistories()
    for event in events:
        if event.tube == tube:
            histories.apply(event)
    clean = histories.acknowledged - histories.inconsistent - histories.held_twice
    return FeedCheck(
        put=len(histories.states),
        processed=len(clean),
        lost=sorted(histories.states.keys() - histories.acknowledged),
        held_twice=sorted(histories.held_twice),
        inconsistent=sorted(histories.inconsistent),
        released=histories.released,
        events=histories.events,
    )
