"""Cut a failing run down to the decisions that it takes (Zeller's delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Fails = Callable[[Sequence[int]], bool]
"""Tells whether a run that follows only these decisions still fails."""

RUNS_MAX = 400


def shrink(decisions: Sequence[int], fails: Fails, runs_max: int = RUNS_MAX) -> list[int]:
    """Return a part of ``decisions`` with which the run still fails.

    No decision can be left out any more, or ``runs_max`` runs were not enough to find out.
    """
    kept = list(decisions)
    parts = 2
    runs = 0
    while len(kept) >= 1 and runs < runs_max:
        size = max(1, -(-len(kept) // parts))
        for begin in range(0, len(kept), size):
            runs += 1
            fewer = kept[:begin] + kept[begin + size :]
            if fails(fewer):
                kept = fewer
                parts = max(parts - 1, 2)
                break
            if runs >= runs_max:
                return kept
        else:
            if size == 1:
                return kept
            parts = min(2 * parts, len(kept))
    return kept
