"""One partition of the change feed: its sequence numbers, and the events not yet in the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from taskraft_service.queue.entities.event_cause import NO_CAUSE
from taskraft_service.queue.feed.chunk import (
    AT_MS_COLUMN,
    CAUSE_COLUMN,
    ENCODERS,
    FIELDS,
    FINGERPRINT_COLUMN,
    ChangeChunk,
    ChangeColumns,
    Field,
    cut,
    cut_column,
    encode,
    read_header,
    unpack,
)
from taskraft_service.queue.feed.chunk_merge import ChunkTail, StoredChunk, join, merge
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Number
from taskraft_service.queue.store.keys import chunk_key, partition_stop
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.values import value
from taskraft_service.versions import FeedVersion

PARTITION_NUMBERS: Final[FieldTable[dict[str, int]]] = FieldTable(
    dict,
    Number("low_seq", "Q"),
    Number("stored_seq", "Q"),
    Number("high_ms", "q"),
    Number("bytes_written", "Q"),
)
"""First sequence number, first number not in the store, last instant, bytes written so far."""

PIECES_MAX: Final = 256
"""Maximum number of stored chunks that one chunk of ``read`` joins; bounds the time of one step."""


@value
class PartitionView:
    """Bounds and size of a partition; ``bytes`` and ``oldest_ms`` (0: no event) differ by node."""

    partition: int
    low_seq: int
    high_seq: int
    high_ms: int
    bytes: int
    oldest_ms: int


class FeedPartition:
    """One partition of the feed.

    ``stored_seq`` is the first sequence number that the store does not have. ``fresh`` has the
    fields of all later events, one event after the other.
    """

    __slots__ = (
        "_tail",
        "bytes_floor",
        "bytes_written",
        "fresh",
        "high_ms",
        "low_seq",
        "number",
        "oldest_ms",
        "stored_seq",
    )

    def __init__(self, number: int) -> None:
        """Make an empty partition."""
        self.number = number
        self.low_seq = 0
        self.stored_seq = 0
        self.fresh: list[Field] = []
        self.high_ms = 0
        self.bytes_written = 0
        self.bytes_floor = 0
        self.oldest_ms = 0
        self._tail = ChunkTail()

    @property
    def high_seq(self) -> int:
        """Return the sequence number that the next event gets."""
        return self.stored_seq + len(self.fresh) // FIELDS

    def view(self) -> PartitionView:
        """Return the partition as a value."""
        fresh = self.fresh
        high_ms = fresh[AT_MS_COLUMN - FIELDS] if fresh else self.high_ms
        oldest_ms = self.oldest_ms or (fresh[AT_MS_COLUMN] if fresh else 0)
        assert isinstance(high_ms, int)
        assert isinstance(oldest_ms, int)
        kept = self.bytes_written - self.bytes_floor
        return PartitionView(self.number, self.low_seq, self.high_seq, high_ms, kept, oldest_ms)

    def read(
        self, store: Store, from_seq: int, to_seq: int, rows_max: int
    ) -> Iterator[ChangeChunk]:
        """Yield the events of a range from the store and from memory; see ``ChangeFeed.read``."""
        at = first = max(from_seq, self.low_seq)
        pieces: list[ChangeColumns] = []
        for columns, rows in self._pieces(store, at, min(to_seq, self.high_seq), rows_max):
            if pieces and (at + rows - first > rows_max or len(pieces) == PIECES_MAX):
                yield ChangeChunk(self.number, first, at, at - first, join(pieces))
                pieces, first = [], at
            pieces.append(columns)
            at += rows
        if pieces:
            yield ChangeChunk(self.number, first, at, at - first, join(pieces))

    def frames(self, store: Store, seq: int) -> Iterator[tuple[int, bytes]]:
        """Yield the stored chunks from the chunk with an event on, each after its first number."""
        for key, frame in store.scan(chunk_key(self.number, seq + 1), partition_stop(self.number)):
            yield int.from_bytes(key[-8:], "big") - read_header(frame).rows, frame

    def instant(self, store: Store, seq: int) -> int:
        """Return the instant of an event, which must be in the partition."""
        if seq >= self.stored_seq:
            at_ms = self.fresh[(seq - self.stored_seq) * FIELDS + AT_MS_COLUMN]
            assert isinstance(at_ms, int)
            return at_ms
        start, frame = next(self.frames(store, seq))
        (found,) = unpack("q", cut_column(frame, AT_MS_COLUMN, seq - start, seq - start + 1))
        return found

    def failure_chunk(
        self, store: Store, from_seq: int, fresh_rows_max: int
    ) -> tuple[int, ChangeChunk | None]:
        """Return the chunk that begins with an event, or None if no event in it has a fingerprint.

        The chunk ends where the stored chunk ends, or after ``fresh_rows_max`` events that are not
        in the store yet. The first number is that of the event after the chunk. A chunk without
        fingerprints, the usual case, costs a look at one column.
        """
        if from_seq >= self.stored_seq:
            first = from_seq - self.stored_seq
            piece = self.fresh[first * FIELDS : (first + fresh_rows_max) * FIELDS]
            causes = piece[CAUSE_COLUMN::FIELDS]
            rows = len(causes)
            if causes.count(NO_CAUSE) == rows:
                return from_seq + rows, None
            first, frame = 0, encode(piece)
        else:
            start, frame = next(self.frames(store, from_seq))
            first, rows = from_seq - start, read_header(frame).rows
            if not cut_column(frame, FINGERPRINT_COLUMN, first, rows).strip(b"\0"):
                return start + rows, None
            rows -= first
        until = from_seq + rows
        columns = cut(frame, first, first + rows)
        return until, ChangeChunk(self.number, from_seq, until, rows, columns)

    def _pieces(
        self, store: Store, at: int, stop: int, rows_max: int
    ) -> Iterator[tuple[ChangeColumns, int]]:
        """Yield the columns and the rows of each stored chunk of a range, then those in memory."""
        number = self.number
        stored_stop = min(stop, self.stored_seq)
        if at < stored_stop:
            for start, frame in self.frames(store, at):
                end = start + read_header(frame).rows
                assert start <= at < end, f"partition {number} has no chunk with {at}"
                for first in range(at, min(end, stored_stop), rows_max):
                    last = min(first + rows_max, end, stored_stop)
                    yield cut(frame, first - start, last - start), last - first
                at = min(end, stored_stop)
                if at == stored_stop:
                    break
            assert at == stored_stop, f"partition {number} ends at {at}"
        while at < stop:
            first = at - self.stored_seq
            last = min(first + rows_max, stop - self.stored_seq)
            frame = encode(self.fresh[first * FIELDS : last * FIELDS])
            yield cut(frame, 0, last - first), last - first
            at += last - first

    def collect(
        self, store: Store, writes: list[Write], rows_max: int, version: FeedVersion
    ) -> None:
        """Append the new events to ``writes`` as chunks of at most ``rows_max``; drop the rows.

        Small chunks that the store has already are merged with the new chunks (``ChunkTail``).
        Chunks whose events are all trimmed are not written, and no later chunk merges with them.
        """
        fresh = self.fresh
        if not fresh:
            return
        changed: dict[int, bytes | None] = {}
        fields_max = rows_max * FIELDS
        for first in range(0, len(fresh), fields_max):
            piece = fresh[first : first + fields_max]
            frame = ENCODERS[version](piece, self.bytes_written)
            header = read_header(frame)
            self.high_ms = header.last_ms
            self.stored_seq += header.rows
            if self.stored_seq <= self.low_seq:
                continue
            self.oldest_ms = self.oldest_ms or header.first_ms
            self.bytes_written += len(frame)
            changed[self.stored_seq] = frame
            for chunks in self._tail.add(StoredChunk(self.stored_seq, header.rows), rows_max):
                self._merge(store, chunks, changed)
        fresh.clear()  # in place: ``ChangeFeed.appends`` holds the ``extend`` of this list
        writes.extend((chunk_key(self.number, end), frame) for end, frame in changed.items())

    def _merge(
        self, store: Store, chunks: Sequence[StoredChunk], changed: dict[int, bytes | None]
    ) -> None:
        """Replace chunks by one chunk in ``changed``: by last sequence number plus 1, the frame."""
        missing = [one.end_seq for one in chunks if one.end_seq not in changed]
        keys = [chunk_key(self.number, end) for end in missing]
        frames = dict(zip(missing, store.get_many(keys), strict=True)) | changed
        found = [frame for one in chunks if (frame := frames[one.end_seq]) is not None]
        assert len(found) == len(chunks), f"partition {self.number}: no chunk at one of {missing}"
        merged, last = merge(found), chunks[-1].end_seq
        for end in (one.end_seq for one in chunks):
            if end in missing:
                changed[end] = None
            else:
                del changed[end]
        changed[last] = merged
        if last == self.stored_seq:
            self.bytes_written = read_header(merged).bytes_before + len(merged)

    def restore(self, low_seq: int, stored_seq: int, high_ms: int, bytes_written: int) -> None:
        """Set the numbers from the meta record."""
        self.low_seq, self.stored_seq = low_seq, stored_seq
        self.high_ms, self.bytes_written = high_ms, bytes_written

    def trim(self, store: Store, low_seq: int) -> None:
        """Start the partition at a higher sequence number; the caller deletes the chunks."""
        self.low_seq = low_seq
        self._tail.trim(low_seq)
        self.measure(store)

    def measure(self, store: Store) -> None:
        """Read the size and age of the oldest chunk."""
        self.bytes_floor, self.oldest_ms = self.bytes_written, 0
        first = chunk_key(self.number, self.low_seq + 1)
        for _, frame in store.scan(first, partition_stop(self.number)):
            header = read_header(frame)
            self.bytes_floor, self.oldest_ms = header.bytes_before, header.first_ms
            return
