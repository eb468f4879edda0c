"""Store the change feed: partitions of events, each with dense sequence numbers.

Events are rows in memory until the next batch of writes, and chunks of columns in the store
afterwards; both can be read. A node cuts events into chunks when it writes, so chunks differ
between nodes. Only sequence numbers are part of the replicated state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from taskraft_service.queue.entities.event_cause import NO_CAUSE, EventCause
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.feed.chunk import ChangeChunk, Event, Field, events_of, read_header
from taskraft_service.queue.feed.feed_partition import FeedPartition, PartitionView
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.keys import chunk_key, partition_stop
from taskraft_service.queue.store.store import RangeDeletion, Store, Write
from taskraft_service.versions import FeedVersion


class EntryStamp:
    """Revision and timestamp of the events of one log entry, and the number of events so far.

    Attributes:
        revision: index of the entry.
        at_ms: timestamp of the events, in wall time.
        ahead_ms: ``at_ms`` minus cluster time; turns the instants of a task into wall time.
        place: number of events that the entry has made; the next event gets this place.
    """

    __slots__ = ("ahead_ms", "at_ms", "place", "revision")

    def __init__(self, revision: int, at_ms: int) -> None:
        self.revision = revision
        self.at_ms = at_ms
        self.ahead_ms = 0
        self.place = 0


TUBE_STRIDE: Final = 0x9E3779B1
"""Factor of the tube number in the choice of a partition, to spread the tubes over partitions.

The partition is (tube number * factor + task id) modulo the number of partitions, so consecutive
tasks of one tube go to all partitions in turn.
"""

NO_OUTCOME: Final = TaskOutcome.NONE
RETENTION_CHUNKS_MAX: Final = 64
"""Maximum number of chunks of a partition that one decision on retention reads."""


def _forget(_row: tuple[Field, ...]) -> None:
    """Drop an event, because there is no feed before the first Startup command."""


class ChangeFeed:
    """All partitions of the feed.

    ``appends`` has, for each partition, the function that appends the fields of an event.
    """

    def __init__(self, store: Store, limits: Limits) -> None:
        """Make a feed that drops all events until ``begin``."""
        self._store = store
        self._rows_max = limits.feed_chunk_rows_max
        self._trimmed: list[RangeDeletion] = []
        self.feed_id = ""
        self.partitions: list[FeedPartition] = []
        self.appends: tuple[Callable[[tuple[Field, ...]], None], ...] = (_forget,)

    def begin(self, feed_id: str, partitions: int) -> None:
        """Set the id and the number of partitions, once in the lifetime of a cluster."""
        assert not self.partitions
        self.feed_id = feed_id
        self.partitions = [FeedPartition(number) for number in range(partitions)]
        self.appends = tuple(partition.fresh.extend for partition in self.partitions) or (_forget,)

    def rename(self, feed_id: str) -> None:
        """Give the feed another id, because its next events differ from those of the old feed."""
        assert self.partitions
        self.feed_id = feed_id

    def emit(
        self,
        stamp: EntryStamp,
        tasks: Sequence[QueueTask],
        kind: EventKind,
        from_state: State,
        to_state: State,
        cause: EventCause = NO_CAUSE,
        outcome: TaskOutcome = NO_OUTCOME,
    ) -> None:
        """Append one event per task, in order; all tasks make the same transition in one tube.

        At the call, each task must have the attempt and the session that the event shows, and the
        ``since_ms`` of its previous state. Events are plain tuples, because creating a named tuple
        takes twice as long.
        """
        tube = tasks[0].tube
        name, salt = tube.name, tube.number * TUBE_STRIDE
        revision, place, at_ms = stamp.revision, stamp.place, stamp.at_ms
        ahead_ms = stamp.ahead_ms
        appends = self.appends
        partitions = len(appends)
        for task in tasks:
            task_id, session = task.id, task.session
            created_ms, since_ms = task.created_ms, task.since_ms
            if ahead_ms:  # 0 in a cluster whose clocks were never corrected
                created_ms += ahead_ms
                since_ms += ahead_ms
            appends[(salt + task_id) % partitions](
                (
                    revision,
                    place,
                    at_ms,
                    name,
                    task_id,
                    kind,
                    from_state,
                    to_state,
                    task.attempt,
                    task.priority,
                    created_ms,
                    since_ms,
                    task.subqueue,
                    session.label if session is not None else "",
                    cause,
                    task.type,
                    task.payload_bytes,
                    outcome,
                )
            )
            place += 1
        stamp.place = place

    def views(self) -> list[PartitionView]:
        """Return the current range of each partition, as immutable values."""
        return [partition.view() for partition in self.partitions]

    def read(
        self, partition: int, from_seq: int, to_seq: int, rows_max: int
    ) -> Iterator[ChangeChunk]:
        """Return the events from ``from_seq`` to before ``to_seq`` in order; skip trimmed events.

        A chunk has at most ``rows_max`` rows and begins where the chunk before ended. The feed must
        not change during the iteration: take some chunks, then call again from the last
        ``next_seq``. The caller compares ``from_seq`` with ``low_seq``.
        """
        return self.partitions[partition].read(self._store, from_seq, to_seq, rows_max)

    def events(self, partition: int, from_seq: int, to_seq: int) -> Iterator[tuple[int, Event]]:
        """Yield the events of a range with their sequence numbers."""
        for chunk in self.read(partition, from_seq, to_seq, self._rows_max):
            yield from enumerate(events_of(chunk.columns), chunk.from_seq)

    def failure_chunk(
        self, partition: int, from_seq: int, fresh_rows_max: int
    ) -> tuple[int, ChangeChunk | None]:
        """Return the chunk that begins with an event; see ``FeedPartition.failure_chunk``."""
        return self.partitions[partition].failure_chunk(self._store, from_seq, fresh_rows_max)

    def instant(self, partition: int, seq: int) -> int:
        """Return the instant of an event, which must be in the partition."""
        return self.partitions[partition].instant(self._store, seq)

    def seq_at(self, partition: int, at_ms: int) -> int:
        """Return the sequence number of the first event from an instant on, or the next number."""
        part = self.partitions[partition]
        low, high = part.low_seq, part.high_seq
        while low < high:
            middle = (low + high) // 2
            if part.instant(self._store, middle) < at_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def retention_due(
        self, now_ms: int, age_ms: int, bytes_max: int, held_back: Mapping[int, int]
    ) -> Mapping[int, int] | None:
        """Return the new ``low_seq`` by partition if events are too old or too many, or None.

        Events are deleted if the partitions together exceed ``bytes_max``, or if they are older
        than ``age_ms``. Age does not delete events from the sequence numbers ``held_back`` on (by
        partition), because a consumer has not read them yet. One call reads a bounded number of
        chunks.
        """
        share = bytes_max // max(len(self.partitions), 1)
        low_seq = {}
        for part in self.partitions:
            low = part.low_seq
            scan = self._store.scan(chunk_key(part.number, low + 1), partition_stop(part.number))
            for key, frame in islice(scan, RETENTION_CHUNKS_MAX):
                header = read_header(frame)
                over = part.bytes_written - header.bytes_before > share
                end = int.from_bytes(key[-8:], "big")
                is_needed = end > held_back.get(part.number, end)
                if not over and (is_needed or header.last_ms >= now_ms - age_ms):
                    break
                low = end
            if low > part.low_seq:
                low_seq[part.number] = low
        return low_seq or None

    def trim(self, low_seq: Mapping[int, int]) -> int:
        """Remove the events below the given sequence numbers, by partition; return how many."""
        removed = 0
        for number, low in low_seq.items():
            if not 0 <= number < len(self.partitions):
                continue
            part = self.partitions[number]
            low = min(low, part.high_seq)  # noqa: PLW2901 - a future position trims to the end
            if low <= part.low_seq:
                continue
            removed += low - part.low_seq
            self._trimmed.append(RangeDeletion(chunk_key(number, 0), chunk_key(number, low + 1)))
            part.trim(self._store, low)
        return removed

    def collect(self, writes: list[Write], version: FeedVersion) -> None:
        """Append the new events to ``writes`` as chunks of a version, and drop their rows."""
        for part in self.partitions:
            part.collect(self._store, writes, self._rows_max, version)
        writes.extend(self._trimmed)
        self._trimmed.clear()

    def restore(self, feed_id: str, partitions: Sequence[Mapping[str, int]]) -> None:
        """Continue with the id and the partitions of the meta record."""
        if not partitions:
            return
        self.begin(feed_id, len(partitions))
        for part, numbers in zip(self.partitions, partitions, strict=True):
            part.restore(**numbers)
            part.measure(self._store)


def low_and_high(feed: ChangeFeed) -> Sequence[tuple[int, int]]:
    """Return the first and the next sequence number of each partition, equal on all replicas."""
    return [(part.low_seq, part.high_seq) for part in feed.partitions]
