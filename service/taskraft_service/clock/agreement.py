"""Derive one value from the clocks of the members.

One wrong wall clock among three, or two among five, never determines the value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from taskraft_replication.core.types import MemberId
from taskraft_service.clock.cluster_clock import TimeEstimate

WALL_TOLERANCE_MS: Final = 1_000
"""Maximum difference between wall clocks that agree. Synchronised clocks differ by much less."""

START_DELAY_MS_MAX: Final = 1_000
"""Assumed maximum by which the cluster time of a leader is behind the time of the leader before.
Only the network delay of heartbeats, and the drift of clocks, cause such a difference."""

HasQuorum: TypeAlias = Callable[[Collection[MemberId]], bool]
"""Returns whether members include a majority of the voters, in a joint configuration of both
halves."""


def agreed_value(values: Mapping[MemberId, int], has_quorum: HasQuorum) -> int | None:
    """Return the median of the values that agree, or None if no quorum agrees.

    Values agree if they differ by at most ``WALL_TOLERANCE_MS``. The largest group of agreeing
    values that has a quorum determines the median.
    """
    ordered = sorted((value, member) for member, value in values.items())
    best: list[tuple[int, MemberId]] = []
    for place, (first, _) in enumerate(ordered):
        close = [each for each in ordered[place:] if each[0] - first <= WALL_TOLERANCE_MS]
        if len(close) > len(best) and has_quorum([member for _, member in close]):
            best = close
    return best[(len(best) - 1) // 2][0] if best else None


def continued_estimate(
    estimates: Iterable[TimeEstimate], epoch: int, term: int
) -> TimeEstimate | None:
    """Return the estimate from which a new leader continues, or None if no estimate is usable.

    Each estimate is a lower bound, so the highest of equal rank is used:

    1. Estimates of the cluster time of the leader of ``term``, or of a later leader. A later
       leader was lost before its Startup was applied. It had continued the time of the leader of
       ``term``, so its time is not higher.
    2. Estimates of an earlier leader's time in the same epoch, minus ``START_DELAY_MS_MAX``,
       because the cluster time of the leader of ``term`` can have started lower by that much.
    3. Estimates of the earliest later epoch. No deadline depends on that epoch yet.

    An estimate of an earlier epoch does not count, because the cluster time was started again
    from wall clocks since then.

    Args:
        estimates: the estimates of the members at this instant.
        epoch: the epoch of the applied state.
        term: the term of the last leader whose Startup is applied.
    """
    by_epoch: dict[int, list[TimeEstimate]] = {}
    for estimate in estimates:
        if estimate.epoch >= epoch:
            by_epoch.setdefault(estimate.epoch, []).append(estimate)
    if not by_epoch:
        return None
    earliest = by_epoch[min(by_epoch)]
    current = [each for each in earliest if each.epoch > epoch or each.term >= term]
    if current:
        return max(current, key=lambda each: each.cluster_ms)
    highest = max(earliest, key=lambda each: each.cluster_ms)
    return replace(highest, cluster_ms=highest.cluster_ms - START_DELAY_MS_MAX)


def least_plausible(guesses: Iterable[int], floor_ms: int) -> int:
    """Return the lowest plausible estimate, or the floor if there is none.

    An estimate up to ``WALL_TOLERANCE_MS`` below the floor is plausible, and means the floor: after
    a short stop, a right wall clock can be a little behind the last timestamp.

    Used while the members' estimates disagree. The lowest estimate is safest: if the cluster time
    is too low, deadlines are late, but if it is too high, leases end and tasks are deleted too
    early.
    """
    plausible = [guess for guess in guesses if guess >= floor_ms - WALL_TOLERANCE_MS]
    return max(floor_ms, min(plausible, default=floor_ms))
