"""Run what is too long for a change: ``make nightly``, or ``make nightly ONLY="drills mutants"``.

Each part is a target of the Makefile. Its output goes to ``var/nightly/<part>.log``. A failed part
does not end the run. The last lines are one table, and the exit status is 1 if a part failed.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

LOGS = Path("var/nightly")
DAY_SECONDS = 86_400
SEEDS = 2_000
"""Seeds of the simulation in one night."""
FIGURE_CHARS_MAX = 100


@dataclass(frozen=True)
class Part:
    """One target of the Makefile."""

    name: str
    goal: tuple[str, ...]
    """Arguments of make."""
    needs: tuple[str, ...] = ()
    """Programs without which the part does not run."""


@dataclass(frozen=True)
class Row:
    """The result of one part."""

    name: str
    result: str
    """``passed``, ``FAILED`` or ``not run``."""
    seconds: float
    figure: str
    """Last line of the output, which has the figures of the part."""


def parts(day: int) -> tuple[Part, ...]:
    """Return all parts, the shortest first.

    Args:
        day: days since 1970. Each night tries other seeds.
    """
    return (
        Part("scan", ("scan",)),
        Part("tests", ("test", "T=--nightly")),
        Part("native", ("test-native", "T=--nightly"), ("cargo",)),
        Part("grpc", ("test-grpc", "T=--nightly")),
        Part("long-tasks", ("long-tasks",), ("go", "node")),
        Part("hostile-frames", ("hostile-frames",)),
        Part("upgrade", ("upgrade-drill",)),
        Part("spark-versions", ("spark-versions",), ("java",)),
        Part("spark-kills", ("spark-kills",), ("java",)),
        Part("slow-links", ("slow-links",), ("unshare",)),
        Part("prometheus", ("real-prometheus",), ("prometheus",)),
        Part("collector", ("real-collector",), ("go",)),
        Part("kubernetes", ("k8s",), ("go",)),
        Part("drills", ("drill", f"SEED={day}")),
        Part(
            "simulation", ("sim", f"SEEDS={SEEDS}", "STEPS=5000", f"SEED_BASE={SEEDS * day}")
        ),
        Part("mutants", ("mutants",)),
    )  # fmt: skip


def run_part(part: Part) -> Row:
    """Run a part to its end, or say what this machine lacks for it."""
    missing = [program for program in part.needs if shutil.which(program) is None]
    if missing:
        return Row(part.name, "not run", 0.0, f"not installed: {', '.join(missing)}")
    log = LOGS / f"{part.name}.log"
    began = time.monotonic()
    with log.open("wb") as output:
        command = ["make", "--no-print-directory", *part.goal]
        status = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False
        ).returncode
    seconds = time.monotonic() - began
    lines = log.read_text(errors="replace").strip().splitlines() or ["no output"]
    figure = lines[-1] if status == 0 else f"{log}: {lines[-1]}"
    return Row(part.name, "FAILED" if status else "passed", seconds, figure[:FIGURE_CHARS_MAX])


def table(rows: Sequence[Row]) -> str:
    """Return the table of all parts."""
    lines = [f"{'part':15} {'result':8} {'minutes':>7}  last line of the output"]
    lines += [f"{row.name:15} {row.result:8} {row.seconds / 60:7.1f}  {row.figure}" for row in rows]
    return "\n".join(lines)


def main() -> int:
    """Run the chosen parts; return 1 if one of them failed."""
    known = parts(int(datetime.now(UTC).timestamp()) // DAY_SECONDS)
    names = [part.name for part in known]
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="PART", help=f"default: {' '.join(names)}")
    only = parser.parse_args().only or names
    unknown = sorted(set(only) - set(names))
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; the parts are {', '.join(names)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    rows = []
    for part in known:
        if part.name in only:
            rows.append(run_part(part))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    print("\n" + table(rows))
    return 1 if any(row.result == "FAILED" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
