"""Run drills and print a table: ``make drill`` runs all, ``make drill ONLY=pause`` some.

With HISTORY=directory, each history is kept there, as "drill-seed.jsonl". The result of a run is
written to ``bench/results/drills``, see ``tools/drill_records.py``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from taskraft import TaskraftError
from tests.cluster.volume import NoVolumes
from tests.drill import spark_deaths
from tests.drill.drill_run import Drill, DrillRun, Result
from tests.drill.drill_table import DRILLS
from tests.drill.judge import judge_file, summary
from tools.drill_records import FOLDER, DrillRecord, write_record
from tools.local_node import NodeFailed
from tools.packet_links import NoNamespaces
from tools.preload import CompilerMissing

UNSUPPORTED = (CompilerMissing, NoNamespaces, NoVolumes, spark_deaths.JavaTooOld)
"""Errors that say what this machine lacks for a drill."""

HEAD = (
    f"{'drill':16} {'operations':>10} {'puts':>7} {'faults':>6} {'unavailable':>12}"
    "  repairs  violations"
)


def line_of(result: Result) -> str:
    """Return one line of the table."""
    evidence = result.verdict.evidence
    late = "" if result.is_available else f" (above {result.unavailable_seconds_max:g} s)"
    times = result.repair_seconds
    repairs = f"{len(times)}/{max(times):.1f}s" if times else "-"
    return (
        f"{result.name:16} {evidence.operations:10d} {evidence.puts:7d} {result.faults:6d} "
        f"{result.unavailable_seconds:10.2f} s  {repairs:>7}  "
        f"{summary(result.verdict.violations) or '0'}{late}{_hostile_part(result)}"
    )


def _hostile_part(result: Result) -> str:
    """Return what hostile callers tried; empty without such callers."""
    if not result.tried:
        return ""
    counts = ", ".join(f"{count} of the {name}" for name, count in sorted(result.tried))
    methods = f" with {result.methods} methods" if result.methods else ""
    strain = "" if result.strain is None else f"; {result.strain}"
    return f"; {len(result.breaches)} breaches; resisted calls: {counts}{methods}{strain}"


def judge_files(paths: list[Path]) -> int:
    """Print the violations in histories; return 1 if there is any."""
    verdicts = [judge_file(path) for path in paths]
    for path, verdict in zip(paths, verdicts, strict=True):
        print(f"{path.name}: {summary(verdict.violations) or 'no violation'}; {verdict.evidence}")
        for violation in verdict.violations:
            print(f"    {violation}")
    return 1 if any(verdict.violations for verdict in verdicts) else 0


def main() -> int:
    """Run the chosen drills; return 1 after a violation or too long an outage."""
    parser = argparse.ArgumentParser(description="Run node processes under faults and judge them.")
    parser.add_argument("names", nargs="*", metavar="DRILL", help="default: all drills")
    parser.add_argument("--seed", type=int, default=1, help="seed of the faults and the clients")
    parser.add_argument("--seconds", type=float, help="duration of the faults of each drill")
    parser.add_argument("--list", action="store_true", help="print the names of the drills")
    parser.add_argument("--judge", nargs="+", type=Path, metavar="FILE", help="judge histories")
    options = parser.parse_args()
    if options.judge:
        return judge_files(options.judge)
    if options.list:
        print("\n".join((*(drill.name for drill in DRILLS), spark_deaths.NAME)))
        return 0
    unknown = set(options.names) - {*(drill.name for drill in DRILLS), spark_deaths.NAME}
    if unknown:
        parser.error(f"unknown drills: {' '.join(sorted(unknown))}; --list prints the names")
    drills = [drill for drill in DRILLS if not options.names or drill.name in options.names]
    if options.seconds is not None:
        drills = [replace(drill, seconds=options.seconds) for drill in drills]
    runs = [(drill.name, partial(history_drill, drill)) for drill in drills]
    if not options.names or spark_deaths.NAME in options.names:
        runs.append((spark_deaths.NAME, spark_drill))
    results, wrong = [], []
    print(HEAD, flush=True)
    for name, drill_run in runs:
        try:
            result = run(name, drill_run, options.seed)
        except UNSUPPORTED as error:
            print(f"{name:16} skipped: {error}", flush=True)
            continue
        if result is not None:
            results.append(result)
        if result is None or not result.is_right:
            wrong.append(name)
    faults = sum(result.faults for result in results)
    print(f"{len(runs)} drills, {faults} faults; failed: {' '.join(wrong) or 'none'}")
    now = datetime.now(UTC)
    record = record_of(results, wrong, options.seed, now)
    write_record(record, FOLDER / f"{now:%Y-%m-%d-%H%M%S}-{options.seed}.json")
    return 1 if wrong else 0


def record_of(
    results: Sequence[Result], wrong: Sequence[str], seed: int, now: datetime
) -> DrillRecord:
    """Return the record of a run; a drill that did not end is only in ``wrong``."""
    ended = {result.name for result in results}
    names = [result.name for result in results] + [name for name in wrong if name not in ended]
    return DrillRecord(
        date=f"{now:%Y-%m-%d}",
        source=f'`make drill ONLY="{" ".join(names)}" SEED={seed}`',
        seed=seed,
        drills=len(names),
        faults=sum(result.faults for result in results),
        operations=sum(result.verdict.evidence.operations for result in results),
        puts=sum(result.verdict.evidence.puts for result in results),
        violations=sum(len(result.verdict.violations) + len(result.breaches) for result in results),
        failed=tuple(wrong),
    )


def history_drill(drill: Drill, folder: Path, history: Path, seed: int) -> Result:
    """Run a drill of the table, and judge its history."""
    return DrillRun(drill, folder, history, seed).run()


def spark_drill(folder: Path, _: Path, seed: int) -> Result:
    """Run the drill of the export, which judges the journal and has no history."""
    return spark_deaths.run(folder, seed)


def run(name: str, drill_run: Callable[[Path, Path, int], Result], seed: int) -> Result | None:
    """Run a drill and print its line; None if the nodes failed, with the reason on stderr."""
    with tempfile.TemporaryDirectory(prefix="taskraft-drill-") as folder:
        kept = Path(os.environ.get("HISTORY") or folder)
        kept.mkdir(parents=True, exist_ok=True)
        history = kept / f"{name}-{seed}.jsonl"
        try:
            result = drill_run(Path(folder) / name, history, seed)
        except (NodeFailed, AssertionError, TaskraftError, TimeoutError, OSError):
            print(f"{name:16} did not end; history: {history}", flush=True)
            traceback.print_exc()
            return None
    print(line_of(result), flush=True)
    if result.strain is not None:
        print(f"    {result.strain.goal_line}", flush=True)
    for violation in (*result.verdict.violations[:10], *result.breaches[:10]):
        print(f"    {violation}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
