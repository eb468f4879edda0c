"""Merge small chunks of a partition into larger chunks.

Each batch of writes adds a chunk to a partition, so a queue with few tasks per second would store
chunks of two or three events. ``ChunkTail`` plans merges of the newest chunks in the store, as a
log-structured merge tree does: an event is written again at most once per level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft_service.queue.feed.chunk import (
    COLUMNS,
    TEXT_COLUMNS,
    TUBE_COLUMN,
    ChangeColumns,
    columns_of,
    cut,
    pack,
    read_header,
    store_columns,
    unpack,
)
from taskraft_service.queue.values import value

MERGE_WIDTH: Final = 16
"""Number of chunks of one level that become one chunk of the next level."""
MERGED_ROWS_MAX: Final = 1_024
"""Maximum number of events of a merged chunk.

A busy queue stores larger chunks anyway, and does no merges. Larger merged chunks would hardly
make reads cheaper.
"""


def join(pieces: Sequence[ChangeColumns]) -> ChangeColumns:
    """Return the rows of several pieces as one piece; no piece may be filtered.

    The tables of tubes and texts are merged, and the positions in them are adapted.
    """
    if len(pieces) == 1:
        return pieces[0]
    tubes: dict[str, int] = {}
    texts: dict[str, int] = {"": 0}
    parts: list[list[bytes]] = [[] for _ in COLUMNS]
    for piece in pieces:
        assert not piece.seq
        tube_places = _places(piece.tubes, tubes)
        text_places = _places(piece.texts, texts)
        for number, column in enumerate(columns_of(piece)):
            if number == TUBE_COLUMN:
                column = _moved(column, tube_places)  # noqa: PLW2901 - the adapted column
            elif number in TEXT_COLUMNS:
                column = _moved(column, text_places)  # noqa: PLW2901 - the adapted column
            parts[number].append(column)
    return ChangeColumns(list(tubes), list(texts), b"", *map(b"".join, parts))


def _places(names: Sequence[str], places: dict[str, int]) -> list[int] | None:
    """Return the new position of each name, or None if no position changes; add new names."""
    found = [places.setdefault(name, len(places)) for name in names]
    return None if found == list(range(len(found))) else found


def _moved(column: bytes, places: list[int] | None) -> bytes:
    """Return a column of positions after its table was merged into another table."""
    if places is None:
        return column
    return pack("i", list(map(places.__getitem__, unpack("i", column))))


def merge(frames: Sequence[bytes]) -> bytes:
    """Return stored chunks that follow each other as one stored chunk."""
    headers = [read_header(frame) for frame in frames]
    columns = join(
        [cut(frame, 0, header.rows) for frame, header in zip(frames, headers, strict=True)]
    )
    rows = sum(header.rows for header in headers)
    first, last = headers[0], headers[-1]
    return store_columns(columns, rows, first.first_ms, last.last_ms, first.bytes_before)


@value
class StoredChunk:
    """Sequence number after the last event of a stored chunk, and its number of events."""

    end_seq: int
    rows: int


class ChunkTail:
    """The newest chunks of a partition, by level; together they have no gap.

    A merge of ``MERGE_WIDTH`` chunks of level n is a chunk of level n + 1. A chunk that cannot grow
    further leaves the tail.
    """

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: list[list[StoredChunk]] = []

    def clear(self) -> None:
        """Forget all chunks; they stay in the store as they are."""
        self._levels.clear()

    def trim(self, low_seq: int) -> None:
        """Forget the chunks whose events are all below a sequence number."""
        for level in self._levels:
            level[:] = [chunk for chunk in level if chunk.end_seq > low_seq]

    def add(self, chunk: StoredChunk, rows_max: int) -> list[Sequence[StoredChunk]]:
        """Add the newest chunk; return the merges to do now, in this order.

        A merge is a list of two or more chunks that become one chunk of at most ``rows_max``
        events, and of at most ``MERGED_ROWS_MAX``. A later merge can include the result of an
        earlier one.
        """
        rows_max = min(rows_max, MERGED_ROWS_MAX)
        merges: list[Sequence[StoredChunk]] = []
        number = 0
        while True:
            if number == len(self._levels):
                self._levels.append([])
            level = self._levels[number]
            level.append(chunk)
            fitting = _fitting(level, rows_max)
            is_full = fitting < len(level) or sum(one.rows for one in level) >= rows_max
            if not is_full and len(level) < MERGE_WIDTH:
                return merges
            merged = level[:fitting]
            del level[:fitting]
            if len(merged) > 1:
                merges.append(merged)
            if is_full:
                # Older chunks of higher levels would not be adjacent to later merges.
                del self._levels[number + 1 :]
                return merges
            chunk = StoredChunk(merged[-1].end_seq, sum(one.rows for one in merged))
            number += 1


def _fitting(level: Sequence[StoredChunk], rows_max: int) -> int:
    """Return the number of oldest chunks of a level that fit into one chunk; at least 1."""
    rows = 0
    for number, chunk in enumerate(level):
        rows += chunk.rows
        if rows > rows_max:
            return max(number, 1)
    return len(level)
