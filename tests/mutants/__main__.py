"""Run the mutants: ``python -m tests.mutants --only figure-8,vote-twice --workers 2``.

Each mutant is applied to a copy of the code, and its tests run there up to the first failure. A
mutant that no test kills shows a missing test. A mutant of the table that ends with a TypeError or
a similar error is not valid. In both cases the exit status is 1. Besides the mutants of the table,
mutants can be generated: ``--generated replication/taskraft_replication/core --sample 100 --seed
7``.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from tests.mutants.generated import generate
from tests.mutants.killers import read_killers, write_killers
from tests.mutants.mutant import FEW_SEEDS, REST, SUITES, Changed, read_table
from tests.mutants.reach import REACHED_SECONDS_MAX, read_reach
from tests.mutants.trial import (
    NO_TEST,
    ROOT,
    TEST_SECONDS_MAX,
    Stage,
    Workshop,
    open_workshop,
    tests_for,
)


def main() -> int:
    """Run the chosen mutants; return the exit status."""
    options = _options()
    known = {} if options.generated else read_killers()
    mutants = _chosen(options)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name:<40} {mutant.breaks}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    begun = time.monotonic()
    seconds_max = REACHED_SECONDS_MAX if options.reach else TEST_SECONDS_MAX
    with open_workshop(options.workers, seconds_max) as workshop:
        _prove(workshop, [known[each.name] for each in mutants if each.name in known])
        killers: dict[str, str] = {}
        accidents: list[str] = []
        for verdict in workshop.verdicts(mutants, _stages(known, options)):
            print(verdict, flush=True)
            if verdict.killer:
                killers[verdict.mutant.name] = verdict.killer
            if verdict.is_accident and not options.generated:
                accidents.append(verdict.mutant.name)
            if options.remember:
                write_killers({**known, **killers})
        _prove(workshop, [each for each in killers.values() if each not in known.values()])
    alive = [each.name for each in mutants if each.name not in killers]
    seconds = time.monotonic() - begun
    print(f"{len(mutants)} mutants, {len(killers)} killed, {seconds:.0f} s")
    if alive:
        print(f"survived: {','.join(alive)}")
    if accidents:
        print(f"no working programs, so they prove nothing: {','.join(accidents)}")
    return 1 if alive or accidents else 0


def _stages(known: Mapping[str, str], options: argparse.Namespace) -> list[Stage]:
    """Return the tests to run in order: the killer of the last run, the suite, then all seeds."""
    if options.reach:
        reach = read_reach(options.reach)
        return [lambda mutant: reach.groups_for(mutant, (ROOT / mutant.file).read_text())]
    if options.scripted:
        return [lambda mutant: [[test] for test in tests_for(mutant) if test not in FEW_SEEDS]]
    stages: list[Stage] = [
        lambda mutant: [[known[mutant.name]]] if mutant.name in known else [],
        lambda mutant: [[test] for test in tests_for(mutant)],
    ]
    if not options.brief:
        rest = [[seed] for seed in REST]
        stages.append(lambda mutant: rest if FEW_SEEDS[0] in SUITES[mutant.suite] else [])
    return stages


def _prove(workshop: Workshop, tests: Sequence[str]) -> None:
    """Exit unless ``tests`` pass on the unchanged code."""
    if not tests:
        return
    answer = workshop.unchanged({*tests} - {NO_TEST})
    if answer.killer:
        sys.exit(f"fails without any mutant: {answer.killer}\n{answer.reason}")


def _chosen(options: argparse.Namespace) -> Sequence[Changed]:
    mutants: Sequence[Changed] = read_table()
    if options.generated:
        mutants = generate(ROOT, options.generated)
    if options.only:
        wanted = set(options.only.split(","))
        mutants = [each for each in mutants if each.name in wanted]
        unknown = wanted - {each.name for each in mutants}
        if unknown:
            sys.exit(f"no such mutant: {', '.join(sorted(unknown))}")
    if options.sample:
        mutants = Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    return mutants


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="names of mutants, joined by commas")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--remember", action="store_true", help="note the killers for next time")
    parser.add_argument("--list", action="store_true", help="name the mutants and what they break")
    parser.add_argument(
        "--generated", nargs="+", default=[], metavar="PATH", help="mistakes made at random there"
    )
    parser.add_argument("--brief", action="store_true", help="try few seeds of the simulation")
    parser.add_argument("--scripted", action="store_true", help="leave the simulation's seeds out")
    parser.add_argument("--reach", type=Path, help="run the tests that reach the line: see reach")
    parser.add_argument("--sample", type=int, default=0, help="how many of them, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="which of them are drawn")
    options = parser.parse_args()
    if options.generated and options.remember:
        parser.error("what is generated has no names to be remembered by")
    return options


if __name__ == "__main__":
    sys.exit(main())
