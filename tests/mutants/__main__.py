"""Run the mutants: ``python -m tests.mutants --only figure-8,vote-twice --workers 2``.

Each is applied to a copy of the code, and its tests are run there up to the first failure. A mutant
that no test kills is a test that is missing; then the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence

from tests.mutants.killers import read_killers, write_killers
from tests.mutants.mutant import Changed, Mutant, read_table
from tests.mutants.trial import NO_TEST, Verdict, Workshop, open_workshop


def main() -> int:
    """Run the chosen mutants; return the exit status."""
    options = _options()
    mutants = _chosen(read_table(), options.only)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name:<40} {mutant.breaks}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    begun = time.monotonic()
    with open_workshop(options.workers) as workshop:
        verdicts = _try(workshop, mutants)
        alive = [each.mutant.name for each in verdicts if not each.killer]
        blind = workshop.failing({each.killer for each in verdicts} - {"", NO_TEST})
    seconds = time.monotonic() - begun
    print(f"{len(mutants)} mutants, {len(mutants) - len(alive)} killed, {seconds:.0f} s")
    if alive:
        print(f"survived: {','.join(alive)}")
    if blind:
        print(f"fails without any mutant: {blind}")
    elif options.remember:
        killed = {each.mutant.name: each.killer for each in verdicts if each.killer}
        write_killers({**read_killers(), **killed})
    return 1 if alive or blind else 0


def _try(workshop: Workshop, mutants: Sequence[Changed]) -> list[Verdict]:
    verdicts = []
    for verdict in workshop.verdicts(mutants, read_killers()):
        print(verdict, flush=True)
        verdicts.append(verdict)
    return verdicts


def _chosen(mutants: Sequence[Mutant], only: str) -> Sequence[Mutant]:
    if not only:
        return mutants
    wanted = set(only.split(","))
    chosen = [each for each in mutants if each.name in wanted]
    unknown = wanted - {each.name for each in chosen}
    if unknown:
        sys.exit(f"no such mutant: {', '.join(sorted(unknown))}")
    return chosen


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="names of mutants, joined by commas")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--remember", action="store_true", help="note the killers for next time")
    parser.add_argument("--list", action="store_true", help="name the mutants and what they break")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
