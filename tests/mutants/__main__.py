"""Run the mutants: ``python -m tests.mutants --only figure-8,vote-twice --copies 2``.

Each is applied to a copy of the code, and its tests are run there up to the first failure. A mutant
that no test kills is a test that is missing; then the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.killers import read_killers, write_killers
from tests.mutants.mutant import Mutant, read_table
from tests.mutants.trial import Bench, Verdict


def main() -> int:
    """Run the chosen mutants; return the exit status."""
    options = _options()
    mutants = read_table()
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name:<40} {mutant.breaks}")
        return 0
    chosen = _chosen(mutants, options.only)
    begun = time.monotonic()
    alive: list[str] = []
    killers = read_killers()
    folder = Path(tempfile.mkdtemp(prefix="taskraft-mutants-"))
    try:
        for verdict in _verdicts(chosen, killers, folder, options.copies):
            print(verdict, flush=True)
            if verdict.killer is None:
                alive.append(verdict.mutant.name)
            elif options.remember and verdict.killer.startswith("tests/"):
                killers[verdict.mutant.name] = verdict.killer
                write_killers(killers)
    finally:
        shutil.rmtree(folder)
    seconds = time.monotonic() - begun
    print(f"{len(chosen)} mutants, {len(chosen) - len(alive)} killed, {seconds:.0f} s")
    if alive:
        print(f"survived: {','.join(alive)}")
    return 1 if alive else 0


def _verdicts(
    chosen: Sequence[Mutant], killers: Mapping[str, str], folder: Path, copies: int
) -> Iterator[Verdict]:
    """Yield what became of each mutant; ``copies`` of them are tried at a time, each in a copy."""
    benches = [Bench(folder / f"copy-{number}") for number in range(copies)]
    free: SimpleQueue[Bench] = SimpleQueue()
    for bench in benches:
        free.put(bench)

    def attempt(mutant: Mutant) -> Verdict:
        bench = free.get()
        try:
            return bench.attempt(mutant, killers.get(mutant.name, ""))
        finally:
            free.put(bench)

    try:
        with ThreadPoolExecutor(copies) as pool:
            for done in as_completed([pool.submit(attempt, each) for each in chosen]):
                yield done.result()
    finally:
        for bench in benches:
            bench.close()


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
    parser.add_argument("--copies", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--remember", action="store_true", help="note the killers for next time")
    parser.add_argument("--list", action="store_true", help="name the mutants and what they break")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
