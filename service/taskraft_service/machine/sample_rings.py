"""Keep samples of tubes in rings of fixed size: the recent past in memory.

A ring has one slot per sample, and each tube has one row of numbers per slot. A coarse sample is
made of several fine ones: counts are added, gauges are those of the last sample.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

ABSENT: Final = 0xFFFF_FFFF
"""Stored number of a missing value; larger values are stored as the number below."""
NO_VALUE: Final = -1
TOTAL: Final = ""
"""Name of the row with the sum over all tubes."""


class TubeSample(NamedTuple):
    """The numbers of one tube in one sample; None: there is no value."""

    put: int | None
    take: int | None
    ack: int | None
    fail: int | None
    expired: int | None
    ready: int | None
    taken: int | None
    buried: int | None
    oldest_ready_age_ms: int | None
    wait_p50_ms: int | None
    wait_p95_ms: int | None
    run_p50_ms: int | None
    run_p95_ms: int | None


WIDTH: Final = len(TubeSample._fields)
COUNTS: Final = 5
"""Number of fields that count since the previous sample; they come first."""


class SampleRing:
    """The last samples of all tubes, at one distance.

    Args:
        step_ms: distance between two samples.
        slots: number of kept samples.
    """

    def __init__(self, step_ms: int, slots: int) -> None:
        self.step_ms = step_ms
        self._slots = slots
        self._at_ms = array("q", bytes(8 * slots))
        self._rows: dict[str, array[int]] = {}
        self._taken = 0
        """Number of samples taken so far."""
        self._first = 0
        """Number of the oldest sample; below 0: the samples before 0 are those of another node."""

    @property
    def count(self) -> int:
        """Number of kept samples."""
        return min(self._taken - self._first, self._slots)

    def add(self, at_ms: int, samples: Mapping[str, TubeSample]) -> None:
        """Store one sample; a tube without numbers in it keeps a gap."""
        slot = self._taken % self._slots
        self._at_ms[slot] = at_ms
        first = slot * WIDTH
        for name in samples.keys() - self._rows.keys():
            self._rows[name] = array("I", [ABSENT]) * (self._slots * WIDTH)
        for name, row in self._rows.items():
            found = samples.get(name)
            for place in range(WIDTH):
                number = found[place] if found is not None else None
                row[first + place] = ABSENT if number is None else min(number, ABSENT - 1)
        self._taken += 1

    def forget(self, name: str) -> None:
        """Drop the samples of a tube."""
        self._rows.pop(name, None)

    def begin_past(self, at_ms: Sequence[int]) -> None:
        """Set the instants of samples that another node took before the first own one.

        Numbers that an earlier call of ``fill_past`` has set become gaps.

        Args:
            at_ms: the instants in order; instants after the first own sample are left out.
        """
        own = self.instants(range(max(self._taken - self._slots, 0), self._taken))
        older = [one for one in at_ms if not own or one < own[0]]
        count = max(min(len(older), self._slots - self._taken), 0)
        gap = array("I", [ABSENT]) * WIDTH
        for number in range(max(self._first, self._taken - self._slots), 0):
            first = number % self._slots * WIDTH
            for row in self._rows.values():
                row[first : first + WIDTH] = gap
        self._first = -count
        for number in range(-count, 0):
            self._at_ms[number % self._slots] = older[number]

    def fill_past(
        self, name: str, at_ms: Sequence[int], columns: Mapping[str, Sequence[int]]
    ) -> None:
        """Set the numbers of one tube at the instants that ``begin_past`` has set.

        Args:
            name: name of the tube; ``TOTAL`` for the sum.
            at_ms: the instants of the numbers; others than those of ``begin_past`` are left out.
            columns: the numbers by field, as ``columns`` yields them. A number that is missing or
                negative, as a node of another version may send it, is a gap.
        """
        oldest = max(self._first, self._taken - self._slots)
        numbers = {self._at_ms[one % self._slots]: one for one in range(oldest, 0)}
        known = [(numbers[at], place) for place, at in enumerate(at_ms) if at in numbers]
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = array("I", [ABSENT]) * (self._slots * WIDTH)
        for place, field in enumerate(TubeSample._fields):
            column = columns[field]
            for number, at in known:
                found = column[at] if at < len(column) else NO_VALUE
                if found >= 0:
                    row[number % self._slots * WIDTH + place] = min(found, ABSENT - 1)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def newest(self, samples_max: int) -> range:
        """Return the newest samples by number, oldest first."""
        return range(self._taken - min(samples_max, self.count), self._taken)

    def instants(self, samples: range) -> list[int]:
        """Return the instants of samples."""
        return [self._at_ms[number % self._slots] for number in samples]

    def columns(self, name: str, samples: range) -> Iterator[tuple[str, list[int]]]:
        """Yield the numbers of a tube in samples, field by field; `NO_VALUE` marks gaps.

        A sample that was overwritten since ``newest`` is a gap.
        """
        row = self._rows[name]
        kept = range(max(samples.start, self._taken - self._slots), samples.stop)
        lost = [NO_VALUE] * (len(samples) - len(kept))
        firsts = [number % self._slots * WIDTH for number in kept]
        for place, field in enumerate(TubeSample._fields):
            numbers = [row[first + place] for first in firsts]
            yield field, lost + [NO_VALUE if each == ABSENT else each for each in numbers]

    def summary(self, name: str, samples: int) -> TubeSample | None:
        """Return one sample that sums up the newest samples of a tube; None without samples."""
        columns = [
            [each for each in numbers if each != NO_VALUE]
            for _, numbers in self.columns(name, self.newest(samples))
        ]
        if not any(columns):
            return None
        counts = [sum(numbers) if numbers else None for numbers in columns[:COUNTS]]
        gauges = [numbers[-1] if numbers else None for numbers in columns[COUNTS:]]
        return TubeSample._make((*counts, *gauges))


def percentile(numbers: Sequence[int], percent: int) -> int | None:
    """Return a percentile of sorted numbers, by the nearest rank; None without numbers."""
    if not numbers:
        return None
    return numbers[max((len(numbers) * percent + 99) // 100 - 1, 0)]
