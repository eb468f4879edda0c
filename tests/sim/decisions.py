"""Derive the events of a run from the seed, as a list that can be shortened."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

GAPS_US = ((100, 5000), (1000, 80_000), (20_000, 200_000))
"""Ranges of the pause between two calls: bursts, normal load, and idle times."""

FAULT_SHARES = (0.5, 0.3, 0.15, 0.08)
"""Share of faults among the decisions: some runs have many faults, and some have few."""


@dataclass(slots=True, frozen=True)
class Decision:
    """An event, scheduled relative to the previous decision."""

    number: int
    gap_us: int
    is_fault: bool
    seed: str

    @property
    def rng(self) -> Random:
        """A source of random numbers for this decision alone."""
        return Random(self.seed)


def decisions_of(seed: int) -> Iterator[Decision]:
    """Yield the decisions of a run, without end."""
    rng = Random(f"{seed} decisions")
    fault_share = rng.choice(FAULT_SHARES)
    for number in count():
        gap_us = rng.randrange(*rng.choice(GAPS_US))
        yield Decision(number, gap_us, rng.random() < fault_share, f"{seed} {number}")


def parse_numbers(text: str) -> frozenset[int]:
    """Parse a list of numbers and ranges, such as ``3,17,40-52``."""
    if text == "none":
        return frozenset()
    numbers: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def format_numbers(numbers: Collection[int]) -> str:
    """Format numbers for ``parse_numbers``."""
    parts: list[str] = []
    ordered = sorted(numbers)
    begin = 0
    for end in range(1, len(ordered) + 1):
        if end < len(ordered) and ordered[end] == ordered[end - 1] + 1:
            continue
        first, last = ordered[begin], ordered[end - 1]
        parts.append(f"{first}" if first == last else f"{first}-{last}")
        begin = end
    return ",".join(parts)
