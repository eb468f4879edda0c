"""Encode events as columns, and cut and decode such chunks.

A chunk holds events of one partition with dense sequence numbers. The columns are little-endian
arrays exactly as in taskraft.v1.ChangeColumns, so a stored chunk is sent to a reader of columns
without work per event. The stored form is a header, the texts, and the columns in the order of
``COLUMNS``. The number of rows determines the offset of each column.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import compress
from operator import and_, attrgetter
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from taskraft_service.queue.entities.event_cause import NO_CAUSE, EventCause
from taskraft_service.queue.values import value
from taskraft_service.versions import FeedVersion


class Event(NamedTuple):
    """One transition of one task; fields as in taskraft.v1.ChangeEvent, without its ``seq``."""

    revision: int
    place: int
    at_ms: int
    tube: str
    task_id: int
    kind: int
    from_state: int
    to_state: int
    attempt: int
    priority: int
    created_ms: int
    since_ms: int
    subqueue: str
    session: str
    reason: str
    type: str
    payload_bytes: int
    outcome: int
    message: str = ""
    fingerprint: int = 0
    target: str = ""
    attempt_failed: int = 0


Field: TypeAlias = "int | str | EventCause"
"""A field of an event in memory; the fields are those of ``COLUMNS`` up to ``outcome``.

The place of ``reason`` has the cause, which also has the columns after ``outcome``.
"""

COLUMNS: Final[tuple[tuple[str, str, int], ...]] = (
    ("revision", "q", 8),
    ("place", "i", 4),
    ("at_ms", "q", 8),
    ("tube", "i", 4),
    ("task_id", "q", 8),
    ("kind", "b", 1),
    ("from_state", "b", 1),
    ("to_state", "b", 1),
    ("attempt", "i", 4),
    ("priority", "q", 8),
    ("created_ms", "q", 8),
    ("since_ms", "q", 8),
    ("subqueue", "i", 4),
    ("session", "i", 4),
    ("reason", "i", 4),
    ("type", "i", 4),
    ("payload_bytes", "i", 4),
    ("outcome", "b", 1),
    ("message", "i", 4),
    ("fingerprint", "q", 8),
    ("target", "i", 4),
    ("attempt_failed", "b", 1),
)
"""Name, type and bytes of each column, in the order of the fields of an event."""

ROW_BYTES: Final = sum(width for _, _, width in COLUMNS)
FIELDS: Final = 18
"""Number of fields of an event in memory; the last one is ``outcome``."""
AT_MS_COLUMN: Final = 2
TUBE_COLUMN: Final = 3
CAUSE_COLUMN: Final = 14
FINGERPRINT_COLUMN: Final = 19
TEXT_COLUMNS: Final = frozenset((12, 13, 14, 15, 18, 20))
TEXTS: Final = frozenset(COLUMNS[number][0] for number in TEXT_COLUMNS)
"""Names of the columns that point to the texts."""
_FORMAT: Final = FeedVersion.V4
_COLUMNS_STORED: Final[Mapping[FeedVersion, int]] = {
    FeedVersion.V2: 18,
    FeedVersion.V3: 21,
    FeedVersion.V4: len(COLUMNS),
}
"""Number of columns by format; a format has the first columns of the next one."""
_SWAP: Final = sys.byteorder == "big"


assert array("i").itemsize == 4


assert array("q").itemsize == 8


_header = Struct("<BIqqQII")
_text = Struct("<H")


@value
class ChangeColumns:
    """Columns of events; fields as in taskraft.v1.ChangeColumns."""

    tubes: Sequence[str]
    texts: Sequence[str]
    seq: bytes
    revision: bytes
    place: bytes
    at_ms: bytes
    tube: bytes
    task_id: bytes
    kind: bytes
    from_state: bytes
    to_state: bytes
    attempt: bytes
    priority: bytes
    created_ms: bytes
    since_ms: bytes
    subqueue: bytes
    session: bytes
    reason: bytes
    type: bytes
    payload_bytes: bytes
    outcome: bytes
    message: bytes
    fingerprint: bytes
    target: bytes
    attempt_failed: bytes


columns_of: Final[Callable[[ChangeColumns], tuple[bytes, ...]]] = attrgetter(
    *(name for name, _, _ in COLUMNS)
)
"""Returns the arrays of columns in the order of ``COLUMNS``."""


@value
class ChangeChunk:
    """Events of one partition.

    The chunk covers ``from_seq`` to ``next_seq - 1``; a filtered chunk has fewer rows.
    """

    partition: int
    from_seq: int
    next_seq: int
    rows: int
    columns: ChangeColumns


@value
class ChunkHeader:
    """Header of a stored chunk.

    ``bytes_before``: bytes that the partition had written before this chunk.
    """

    version: FeedVersion
    rows: int
    first_ms: int
    last_ms: int
    bytes_before: int
    tubes: int
    texts: int


def pack(code: str, numbers: Sequence[int]) -> bytes:
    """Return numbers as a little-endian array.

    Uses ``struct``, which takes half the time of ``array``, because the function runs for every
    column.
    """
    return struct.pack(f"<{len(numbers)}{code}", *numbers)


def unpack(code: str, column: bytes) -> Sequence[int]:
    """Return the numbers of a little-endian array."""
    numbers = array(code)
    numbers.frombytes(column)
    if _SWAP:
        numbers.byteswap()
    return numbers


def _pack_numbers(code: str, column: Sequence[int]) -> bytes:
    """Return a column of numbers; a column of equal numbers, the usual case, is packed once."""
    first, rows = column[0], len(column)
    if column[-1] == first and column.count(first) == rows:
        return pack(code, [first]) * rows
    return pack(code, column)


def _pack_texts(column: Sequence[str], places: dict[str, int]) -> bytes:
    """Return the positions of texts in the text table; new texts are added to ``places``."""
    first = column[0]
    if column.count(first) == len(column):  # the usual case: one tube, no sub-queues, one session
        place = places.setdefault(first, len(places))
        return pack("i", [place]) * len(column)
    for text in dict.fromkeys(column):
        places.setdefault(text, len(places))
    return pack("i", list(map(places.__getitem__, column)))


def _pack_causes(column: Sequence[EventCause], places: dict[str, int]) -> list[bytes]:
    """Return the columns of causes: ``reason``, and the columns after ``outcome``."""
    rows = len(column)
    if column.count(NO_CAUSE) == rows:  # the usual case
        none = bytes(4 * rows)
        return [none, none, bytes(8 * rows), none, bytes(rows)]
    return [
        _pack_texts([cause.reason for cause in column], places),
        _pack_texts([cause.message for cause in column], places),
        _pack_numbers("q", [cause.fingerprint for cause in column]),
        _pack_texts([cause.target for cause in column], places),
        _pack_numbers("b", [cause.attempt_failed for cause in column]),
    ]


def encode(fields: Sequence[Field], bytes_before: int = 0) -> bytes:
    """Return events in the newest format; ``fields`` has the fields of event after event."""
    tubes: dict[str, int] = {}
    texts: dict[str, int] = {"": 0}
    parts: list[bytes] = []
    causes: list[bytes] = []
    for place, (_, code, _) in enumerate(COLUMNS[:FIELDS]):
        column: Sequence[Any] = fields[place::FIELDS]
        if place == TUBE_COLUMN:
            parts.append(_pack_texts(column, tubes))
        elif place == CAUSE_COLUMN:
            reason, *causes = _pack_causes(column, texts)
            parts.append(reason)
        elif place in TEXT_COLUMNS:
            parts.append(_pack_texts(column, texts))
        else:
            parts.append(_pack_numbers(code, column))
    first_ms, last_ms = fields[AT_MS_COLUMN], fields[AT_MS_COLUMN - FIELDS]
    assert isinstance(first_ms, int)
    assert isinstance(last_ms, int)
    rows = len(fields) // FIELDS
    columns = ChangeColumns(list(tubes), list(texts), b"", *parts, *causes)
    return store_columns(columns, rows, first_ms, last_ms, bytes_before)


def store_columns(
    columns: ChangeColumns, rows: int, first_ms: int, last_ms: int, bytes_before: int
) -> bytes:
    """Return columns in the newest format."""
    tubes, texts = columns.tubes, columns.texts
    names = b"".join(_framed(text) for text in (*tubes, *texts))
    header = _header.pack(_FORMAT, rows, first_ms, last_ms, bytes_before, len(tubes), len(texts))
    return b"".join((header, names, *columns_of(columns)))


ENCODERS: Final[Mapping[FeedVersion, Callable[[Sequence[Field], int], bytes]]] = {
    FeedVersion.V4: encode,
}
"""Encoders of events by format; a node writes the format that the cluster version determines.

Arguments: the fields of the events, and the bytes that the partition had written before them.
"""


def _framed(text: str) -> bytes:
    encoded = text.encode()
    return _text.pack(len(encoded)) + encoded


def read_header(frame: bytes) -> ChunkHeader:
    """Return the header of a stored chunk."""
    form, rows, first_ms, last_ms, bytes_before, tubes, texts = _header.unpack_from(frame)
    return ChunkHeader(FeedVersion(form), rows, first_ms, last_ms, bytes_before, tubes, texts)


def cut(frame: bytes, first: int, last: int) -> ChangeColumns:
    """Return the columns of the rows ``first`` to ``last - 1`` of a stored chunk."""
    header = read_header(frame)
    assert 0 <= first < last <= header.rows
    at = _header.size
    names = []
    for _ in range(header.tubes + header.texts):
        (length,) = _text.unpack_from(frame, at)
        at += _text.size
        names.append(frame[at : at + length].decode())
        at += length
    columns = []
    stored = _stored_columns(header)
    for _, _, width in stored:
        columns.append(frame[at + first * width : at + last * width])
        at += header.rows * width
    assert at == len(frame)
    columns += [bytes((last - first) * width) for _, _, width in COLUMNS[len(stored) :]]
    return ChangeColumns(names[: header.tubes], names[header.tubes :], b"", *columns)


def cut_column(frame: bytes, place: int, first: int, last: int) -> bytes:
    """Return the rows ``first`` to ``last - 1`` of one column of numbers of a stored chunk.

    Costs much less than ``cut``, which decodes the texts of all rows. A column that the format of
    the chunk does not have is 0.
    """
    header = read_header(frame)
    stored, width = _stored_columns(header), COLUMNS[place][2]
    if place >= len(stored):
        return bytes((last - first) * width)
    at = len(frame) - header.rows * sum(each for _, _, each in stored[place:])
    return frame[at + first * width : at + last * width]


def _stored_columns(header: ChunkHeader) -> tuple[tuple[str, str, int], ...]:
    return COLUMNS[: _COLUMNS_STORED[header.version]]


def events_of(columns: ChangeColumns) -> Iterator[Event]:
    """Yield the events of columns, in order."""
    fields: list[Sequence[int] | Sequence[str]] = []
    for place, (name, code, _) in enumerate(COLUMNS):
        numbers = unpack(code, getattr(columns, name))
        if place == TUBE_COLUMN:
            fields.append([columns.tubes[number] for number in numbers])
        elif place in TEXT_COLUMNS:
            fields.append([columns.texts[number] for number in numbers])
        else:
            fields.append(numbers)
    for row in zip(*fields, strict=True):
        yield Event(*row)


def cut_row(columns: ChangeColumns, row: int) -> Event:
    """Return the event in one row of columns."""
    fields: list[int | str] = []
    for place, (name, code, width) in enumerate(COLUMNS):
        (number,) = unpack(code, getattr(columns, name)[row * width : (row + 1) * width])
        if place == TUBE_COLUMN:
            fields.append(columns.tubes[number])
        elif place in TEXT_COLUMNS:
            fields.append(columns.texts[number])
        else:
            fields.append(number)
    return Event(*fields)  # type: ignore[arg-type]  # one value per field, by the table of columns


def only(chunk: ChangeChunk, tubes: Collection[str], kinds: Collection[int]) -> ChangeChunk:
    """Return the events of some tubes and kinds (empty: all); the chunk covers the same range.

    The columns are filtered without Python code per event.
    """
    columns = chunk.columns
    wanted = {place for place, name in enumerate(columns.tubes) if not tubes or name in tubes}
    if len(wanted) == len(columns.tubes) and not kinds:
        return chunk
    mask = list(map(wanted.__contains__, unpack("i", columns.tube)))
    if kinds:
        mask = list(map(and_, mask, map(frozenset(kinds).__contains__, unpack("b", columns.kind))))
    picked = []
    for name, code, _ in COLUMNS:
        numbers = unpack(code, getattr(columns, name))
        picked.append(pack(code, list(compress(numbers, mask))))
    seq = pack("q", list(compress(range(chunk.from_seq, chunk.next_seq), mask)))
    kept = ChangeColumns(columns.tubes, columns.texts, seq, *picked)
    return ChangeChunk(chunk.partition, chunk.from_seq, chunk.next_seq, sum(mask), kept)


def with_columns(chunk: ChangeChunk, names: Collection[str]) -> ChangeChunk:
    """Return a chunk with some columns (empty: all); the other columns are empty.

    The chunk keeps the names of tubes, and the texts, if a wanted column points to them.
    """
    if not names:
        return chunk
    columns = chunk.columns
    kept = [
        column if name in names else b""
        for (name, _, _), column in zip(COLUMNS, columns_of(columns), strict=True)
    ]
    tubes = columns.tubes if "tube" in names else ()
    texts = columns.texts if TEXTS.intersection(names) else ()
    found = ChangeColumns(tubes, texts, columns.seq, *kept)
    return ChangeChunk(chunk.partition, chunk.from_seq, chunk.next_seq, chunk.rows, found)
