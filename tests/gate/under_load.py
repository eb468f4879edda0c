"""Run stage 2 of the tests beside programs that use the machine: ``make unstable N=1``.

Two processes use all time of two cores, and one syncs the disk all the time. Each run adds a row to
``var/unstable.jsonl``, and the table of all rows is in ``var/unstable.md``. ``--quiet`` adds a run
without the other programs.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from tests.gate.__main__ import BY_FILE, ENDED, TOGETHER
from tests.gate.outcomes import read_outcomes

ROWS = Path("var/unstable.jsonl")
TABLE = Path("var/unstable.md")
BURN = "while True: pass"
SYNC = """
import os, sys
with open(sys.argv[1], "wb") as file:
    while True:
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
"""


@contextlib.contextmanager
def load(folder: Path) -> Iterator[None]:
    """Use two cores and the disk until the end of the block."""
    programs = [[BURN], [BURN], [SYNC, str(folder / "synced")]]
    running = [subprocess.Popen([sys.executable, "-c", *each]) for each in programs]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def run_once(arguments: list[str], *, is_quiet: bool, together: int) -> dict[str, object]:
    """Run stage 2 once; return the row of the run.

    Raises:
        SystemExit: the run did not end by itself.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "outcomes.jsonl")
        options = ["-q", "--stage", "2", "-n", str(together), *BY_FILE, "--outcomes", str(file)]
        command = [sys.executable, "-m", "pytest", *options, *arguments]
        with contextlib.nullcontext() if is_quiet else load(Path(folder)):
            status = subprocess.run(command, check=False).returncode
        if status not in ENDED:
            raise SystemExit(status)
        outcomes = read_outcomes(file)
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "load": "quiet" if is_quiet else "busy",
        "tests": len(outcomes),
        "failed": {each.test: each.reason for each in outcomes if each.failed},
    }


def table(rows: list[dict]) -> str:
    """Return all runs, and the number of failures of each test, as Markdown."""
    lines = ["| run | load | tests | failed |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {row['at']} | {row['load']} | {row['tests']} | {len(row['failed'])} |" for row in rows
    ]
    failures = Counter(test for row in rows for test in row["failed"])
    reasons = {test: reason for row in rows for test, reason in row["failed"].items()}
    if failures:
        lines += ["", "| test | failures | last reason |", "| --- | --- | --- |"]
        lines += [
            f"| `{test}` | {count} | {reasons[test].replace('|', '/')} |"
            for test, count in failures.most_common()
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run stage 2 some times, and write the table after each run."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate.under_load", description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--quiet", action="store_true", help="run without the other programs")
    parser.add_argument("--together", type=int, default=TOGETHER, help="processes of the tests")
    options, arguments = parser.parse_known_args()
    ROWS.parent.mkdir(exist_ok=True)
    for _ in range(options.runs):
        row = run_once(arguments, is_quiet=options.quiet, together=options.together)
        with ROWS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
        TABLE.write_text(table(rows))
    print(f"{TABLE.read_text()}\nthe table: {TABLE}")


if __name__ == "__main__":
    main()
