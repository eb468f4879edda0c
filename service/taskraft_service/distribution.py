"""Count numbers by bucket, as a Prometheus histogram does, for the cost of one call per number."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple


class CountedExample(NamedTuple):
    """One counted number, with the labels that lead to its trace."""

    labels: Mapping[str, str]
    number: float
    at_seconds: float


class Distribution:
    """The counts of a histogram.

    Args:
        bounds: inclusive upper bounds of the buckets, in ascending order. The last bucket has no
            bound.
    """

    __slots__ = ("_bounds", "_counts", "exemplars", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """Sum of all numbers."""
        self.exemplars: dict[int, CountedExample] = {}
        """The newest example of each bucket that has one, by place of the bucket."""

    def add(self, number: float) -> None:
        """Count one number in its bucket."""
        self._counts[bisect_left(self._bounds, number)] += 1
        self.total += number

    def add_exemplar(self, number: float, labels: Mapping[str, str], at_seconds: float) -> None:
        """Keep the labels of a number that was counted, as the exemplar of its bucket.

        Args:
            number: the number.
            labels: the labels, such as the id of a trace.
            at_seconds: wall time, since the Unix epoch.
        """
        place = bisect_left(self._bounds, number)
        self.exemplars[place] = CountedExample(labels, number, at_seconds)

    @property
    def is_empty(self) -> bool:
        """Return whether no number was counted."""
        return not any(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return the bound of each bucket, and the count of numbers up to this bound."""
        bounds = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        return list(zip(bounds, accumulate(self._counts), strict=True))
