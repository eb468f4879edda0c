"""Run seeds, and report for each failure a short command that repeats it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tests.sim.decisions import format_numbers
from tests.sim.shrink import STEPS_MAX, Trial, shrink
from tests.sim.world import World

Trace = Callable[[str], None]


@dataclass(slots=True, frozen=True)
class Run:
    """The outcome of one run; ``failure`` is empty if no invariant was violated."""

    seed: int
    steps: int
    decided: int
    counts: Counter[str]
    failure: str = ""


def run_seed(
    seed: int, steps: int, chosen: Collection[int] | None = None, trace: Trace | None = None
) -> Run:
    """Run a seed with the ``chosen`` decisions; None means all of them."""
    world = World(seed, chosen=chosen)
    world.trace = trace
    failure = ""
    try:
        world.run(steps)
    except Exception as error:  # noqa: BLE001 - a failed assertion of the product is a finding too
        place = _place_of(error)
        failure = f"{type(error).__name__}: {error}{place}"
    return Run(seed, world.steps, world.decided, world.counts, failure)


@dataclass(slots=True, frozen=True)
class Finding:
    """A failure with its reduced list of decisions."""

    run: Run
    smallest: Run
    decisions: Sequence[int]
    steps: int

    @property
    def command(self) -> str:
        """The command that repeats the smallest failing run."""
        return (
            f"make sim SEEDS=1 SEED_BASE={self.run.seed} STEPS={self.steps} "
            f'ARGS="--decisions {format_numbers(self.decisions) or "none"} --trace"'
        )

    def __str__(self) -> str:
        """Describe the failure and how to repeat it."""
        return (
            f"seed {self.run.seed}, step {self.run.steps}: {self.run.failure}\n"
            f"  shrunk from {self.run.decided} decisions to {len(self.decisions)}, "
            f"step {self.smallest.steps}: {self.smallest.failure}\n"
            f"  repeat: {self.command}"
        )


def shrink_run(run: Run, steps: int, steps_max: int = STEPS_MAX) -> Finding:
    """Reduce a run that failed within ``steps``; any failure counts.

    ``steps_max`` limits the steps that the search simulates.
    """
    # A run that failed early needs no more steps; a run with fewer decisions may need as many.
    steps = min(steps, run.steps)
    smallest = run

    def attempt(chosen: Sequence[int]) -> Trial:
        nonlocal smallest
        again = run_seed(run.seed, steps, frozenset(chosen))
        if again.failure:
            smallest = again
        return Trial(bool(again.failure), again.steps)

    decisions = shrink(range(run.decided), attempt, steps_max)
    return Finding(run, smallest, decisions, steps)


def _place_of(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    code = trace.tb_frame.f_code
    return f" ({code.co_filename.removeprefix(sys.path[0] + '/')}:{trace.tb_lineno})"
