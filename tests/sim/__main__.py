"""Run seeds: ``python -m tests.sim --seeds 20 --steps 2000 --seed-base 1``."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from tests.sim.world import World


def run_seed(seed: int, steps: int, *, trace: bool) -> tuple[World, str]:
    """Run one seed; return the world and what went wrong, if anything did."""
    world = World(seed)
    if trace:
        world.trace = print
    try:
        world.run(steps)
    except Exception as error:  # noqa: BLE001 - an assertion of the product is a finding too
        traceback.print_exc()
        return world, f"{type(error).__name__}: {error}"
    return world, ""


def main() -> int:
    """Run the seeds; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed-base", type=int, default=1)
    parser.add_argument("--trace", action="store_true", help="print every event")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    failures: list[str] = []
    steps = 0
    begun = time.perf_counter()
    for seed in range(options.seed_base, options.seed_base + options.seeds):
        world, failure = run_seed(seed, options.steps, trace=options.trace)
        counts += world.counts
        steps += world.steps
        if failure:
            failures.append(
                f"seed {seed}, step {world.steps}: {failure}\n"
                f"  repeat: python -m tests.sim --seeds 1 --seed-base {seed} "
                f"--steps {options.steps} --trace"
            )
    seconds = time.perf_counter() - begun
    for name, count in sorted(counts.items()):
        print(f"{count:>9} {name}")
    faults = sum(count for name, count in counts.items() if name.startswith("fault"))
    print(
        f"{options.seeds} seeds, {steps} steps, {steps / seconds:.0f} steps/s, "
        f"{faults} faults, {len(failures)} violations"
    )
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
