"""Run seeds: ``python -m tests.sim --seeds 20 --steps 2000 --seed-base 1``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.sim.decisions import parse_numbers
from tests.sim.seeds import run_seed, shrink_run
from tests.sim.shrink import STEPS_MAX


def main() -> int:
    """Run the seeds; return the exit status."""
    options = _options()
    chosen = None if options.decisions is None else parse_numbers(options.decisions)
    counts: Counter[str] = Counter()
    failures: list[str] = []
    steps = 0
    seconds = 0.0
    for seed in range(options.seed_base, options.seed_base + options.seeds):
        begun = time.process_time()
        run = run_seed(seed, options.steps, chosen, print if options.trace else None)
        seconds += time.process_time() - begun
        counts += run.counts
        steps += run.steps
        if not run.failure:
            continue
        if chosen is not None:
            failures.append(f"seed {seed}, step {run.steps}: {run.failure}")
        else:
            print(f"seed {seed}, step {run.steps}: {run.failure}; shrinking", flush=True)
            failures.append(str(shrink_run(run, options.steps, options.shrink_steps)))
        print(failures[-1], flush=True)
    for name, count in sorted(counts.items()):
        print(f"{count:>9} {name}")
    faults = sum(count for name, count in counts.items() if name.startswith("fault"))
    print(
        f"{options.seeds} seeds, {steps} steps, {steps / max(seconds, 0.001):.0f} steps/s, "
        f"{faults} faults, {len(failures)} violations"
    )
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed-base", type=int, default=1)
    parser.add_argument("--decisions", help="use only these decisions: 3,17,40-52, or none")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument(
        "--shrink-steps", type=int, default=STEPS_MAX, help="maximum steps for shrinking a failure"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
