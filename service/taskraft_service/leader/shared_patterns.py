"""Count the distinct sets of patterns of waiting consumers, and the steps that they take."""

from __future__ import annotations

from collections.abc import Iterator

from taskraft_service.languages.patterns import PatternSet


class SharedPatterns:
    """Sets of patterns, each counted once however many consumers wait with the same set.

    ``steps`` is the maximum number of steps that compare a new tube with all sets.
    """

    __slots__ = ("_consumers", "steps")

    def __init__(self) -> None:
        self._consumers: dict[PatternSet, int] = {}
        self.steps = 0

    def __iter__(self) -> Iterator[PatternSet]:
        return iter(self._consumers)

    def __bool__(self) -> bool:
        return bool(self._consumers)

    def steps_with(self, patterns: PatternSet) -> int:
        """Return ``steps`` after one more consumer waits with these patterns."""
        return self.steps + (0 if patterns in self._consumers else patterns.steps_max)

    def add(self, patterns: PatternSet) -> None:
        """Count one more consumer with these patterns."""
        self.steps = self.steps_with(patterns)
        self._consumers[patterns] = self._consumers.get(patterns, 0) + 1

    def remove(self, patterns: PatternSet) -> None:
        """Count one consumer with these patterns less."""
        self._consumers[patterns] -= 1
        if not self._consumers[patterns]:
            del self._consumers[patterns]
            self.steps -= patterns.steps_max
