"""Derive one value from the clocks of the members.

Pure. One wrong wall clock among three, or two among five, never decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

from taskraft_replication.core.types import MemberId

WALL_TOLERANCE_MS: Final = 1_000
"""Maximum difference between wall clocks that agree. Synchronised clocks differ by much less."""

HasQuorum: TypeAlias = Callable[[Collection[MemberId]], bool]
"""Returns whether members include a majority of the voters, in a joint configuration of both
halves."""


def agreed_value(values: Mapping[MemberId, int], has_quorum: HasQuorum) -> int | None:
    """Return the median of the agreeing values if a quorum has them; otherwise None.

    Values agree if they differ by at most ``WALL_TOLERANCE_MS``. The largest such group counts.
    """
    ordered = sorted((value, member) for member, value in values.items())
    best: list[tuple[int, MemberId]] = []
    for place, (first, _) in enumerate(ordered):
        close = [each for each in ordered[place:] if each[0] - first <= WALL_TOLERANCE_MS]
        if len(close) > len(best) and has_quorum([member for _, member in close]):
            best = close
    return best[(len(best) - 1) // 2][0] if best else None


def least_plausible(guesses: Iterable[int], floor_ms: int) -> int:
    """Return the lowest estimate that is not below the floor; the floor if there is none.

    Used while the members' estimates disagree. A cluster time that is too low makes deadlines
    late. A cluster time that is too high would end leases and delete tasks before their time.
    """
    return min((guess for guess in guesses if guess >= floor_ms), default=floor_ms)
