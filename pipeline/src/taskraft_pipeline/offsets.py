"""Offsets and ranges of the feed, and their division into batches and Spark tasks.

Sequence numbers have no gaps, so the range from 10 to 30 of a partition always has 20 events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.errors import OffsetInvalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VERSION: Final = 1
"""Version of the offset format; an offset of a newer version is refused."""

EVENTS_PER_TASK_MIN: Final = 20_000
"""Minimum number of events of a Spark task. Smaller ranges share a task, because starting a task
takes as long as reading some thousand events."""


@dataclass(slots=True, frozen=True)
class Offset:
    """A position in the feed: the next sequence number to read, by partition."""

    feed_id: str
    next_seq: Mapping[int, int]

    def to_json(self) -> dict[str, object]:
        """Return the stored form, with sorted keys because Spark compares offsets as strings."""
        positions = {f"{partition:03d}": seq for partition, seq in sorted(self.next_seq.items())}
        return {"v": VERSION, "feed": self.feed_id, "p": positions}

    def lags(self, high: Mapping[int, int]) -> dict[int, int]:
        """Return the number of events between this position and the end of each partition."""
        return {one: max(0, seq - self.next_seq.get(one, 0)) for one, seq in high.items()}

    @classmethod
    def from_json(cls, stored: object) -> Offset:
        """Return an offset from the form that `to_json` made, as an object or as a string.

        Raises:
            OffsetInvalid: the value is not an offset, or has a newer version.
        """
        if isinstance(stored, str):
            stored = _parsed(stored)
        if not isinstance(stored, dict):
            raise OffsetInvalid(f"not an offset: {stored!r}")
        version, feed_id, positions = (stored.get(name) for name in ("v", "feed", "p"))
        if isinstance(version, int) and version > VERSION:
            raise OffsetInvalid(f"the offset has version {version}, this release reads {VERSION}")
        if version != VERSION or not isinstance(feed_id, str) or not isinstance(positions, dict):
            raise OffsetInvalid(f"not an offset: {stored!r}")
        return cls(feed_id, _positions(positions))


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OffsetInvalid(f"not an offset: {text[:200]!r}") from error


def _positions(stored: Mapping[object, object]) -> dict[int, int]:
    found = {}
    for partition, seq in stored.items():
        if not (isinstance(partition, str) and partition.isdecimal()):
            raise OffsetInvalid(f"not a partition: {partition!r}")
        if not isinstance(seq, int) or isinstance(seq, bool) or seq < 0:
            raise OffsetInvalid(f"not a sequence number: {seq!r}")
        found[int(partition)] = seq
    return dict(sorted(found.items()))


@dataclass(slots=True, frozen=True)
class Range:
    """A part of a partition: from_seq to to_seq - 1."""

    partition: int
    from_seq: int
    to_seq: int

    def __post_init__(self) -> None:
        assert 0 <= self.from_seq <= self.to_seq

    @property
    def events(self) -> int:
        """Number of events."""
        return self.to_seq - self.from_seq


def ranges(start: Mapping[int, int], end: Mapping[int, int]) -> list[Range]:
    """Return the non-empty ranges between two positions.

    A partition that is missing in ``start`` is new and begins at 0.

    Raises:
        OffsetInvalid: the end lies before the start.
    """
    found = []
    for partition, to_seq in sorted(end.items()):
        from_seq = start.get(partition, 0)
        if to_seq < from_seq:
            raise OffsetInvalid(
                f"partition {partition}: the end {to_seq} is before the start {from_seq}"
            )
        if to_seq > from_seq:
            found.append(Range(partition, from_seq, to_seq))
    return found


def share_by_lag(limit: int, lags: Mapping[int, int]) -> dict[int, int]:
    """Divide ``limit`` events among partitions in proportion to their lags.

    The parts add up to the smaller of the limit and all lags. No part exceeds its lag. The rest
    after rounding goes to the largest remainders. So at least one event is read even if the limit
    is 1.
    """
    assert limit >= 0
    total = sum(lags.values())
    if limit >= total:
        return dict(lags)
    parts = {partition: limit * lag // total for partition, lag in lags.items()}
    left = limit - sum(parts.values())
    by_remainder = sorted(
        lags, key=lambda partition: (-(limit * lags[partition] % total), partition)
    )
    for partition in by_remainder[:left]:
        parts[partition] += 1
    return parts


def split_into_tasks(whole: Iterable[Range], events_per_task: int) -> list[tuple[Range, ...]]:
    """Divide ranges into the work of Spark tasks.

    A range with more than ``events_per_task`` events is cut into pieces of equal size. Small pieces
    share a task until it has EVENTS_PER_TASK_MIN events, or ``events_per_task`` if less.
    """
    assert events_per_task > 0
    tasks: list[list[Range]] = []
    room = 0
    for piece in (piece for one in whole for piece in cut_range(one, events_per_task)):
        if piece.events <= room:
            tasks[-1].append(piece)
            room -= piece.events
        else:
            tasks.append([piece])
            room = min(EVENTS_PER_TASK_MIN, events_per_task) - piece.events
    return [tuple(task) for task in tasks]


def cut_range(whole: Range, events_max: int) -> Sequence[Range]:
    """Cut a range into the fewest pieces of at most ``events_max``, equal up to one event."""
    pieces = -(-whole.events // events_max)
    edges = [whole.from_seq + whole.events * number // pieces for number in range(pieces)]
    return [
        Range(whole.partition, from_seq, to_seq)
        for from_seq, to_seq in zip(edges, [*edges[1:], whole.to_seq], strict=True)
    ]
