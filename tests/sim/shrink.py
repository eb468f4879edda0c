"""Reduce a failing run to the decisions that it needs (Zeller's delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Trial:
    """The outcome of a run with some of the decisions."""

    fails: bool
    steps: int


Try = Callable[[Sequence[int]], Trial]
"""Runs with the given decisions only."""

STEPS_MAX = 300_000
"""Maximum number of steps that the search simulates: about one minute."""


def shrink(decisions: Sequence[int], run: Try, steps_max: int = STEPS_MAX) -> list[int]:
    """Return a subset of ``decisions`` with which the run still fails.

    The result is minimal: no decision can be left out. The search ends earlier after ``steps_max``
    steps; the last run may exceed this limit.
    """
    kept = list(decisions)
    parts = 2
    steps = 0
    while len(kept) >= 1 and steps < steps_max:
        size = max(1, -(-len(kept) // parts))
        for begin in range(0, len(kept), size):
            fewer = kept[:begin] + kept[begin + size :]
            trial = run(fewer)
            steps += trial.steps
            if trial.fails:
                kept = fewer
                parts = max(parts - 1, 2)
                break
            if steps >= steps_max:
                return kept
        else:
            if size == 1:
                return kept
            parts = min(2 * parts, len(kept))
    return kept
