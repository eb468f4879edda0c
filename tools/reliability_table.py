"""Write the sum of faults in docs/reliability.md: `python -m tools.reliability_table`.

The sum is that of the files in `bench/results/drills` that git tracks.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.drill_records import FOLDER, DrillRecord, records

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "reliability.md"
BEGIN: Final = "<!-- Written by `python -m tools.reliability_table`; do not edit. -->"
END: Final = "<!-- End of the table. -->"


def tracked_files() -> list[Path]:
    """Return the files of results that git tracks, also if they are only in the index."""
    done = subprocess.run(
        ("git", "ls-files", "*.json"),  # noqa: S607 - as elsewhere, the first git of the PATH
        cwd=FOLDER,
        check=True,
        capture_output=True,
        text=True,
    )
    return [FOLDER / name for name in done.stdout.split()]


def table(found: Sequence[DrillRecord]) -> str:
    """Return the table of the runs and their sum as Markdown."""
    lines = [
        "| date | run | seed | faults | broken promises | failed drills |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        seed = "" if one.seed is None else str(one.seed)
        failed = " ".join(one.failed) or "none"
        lines.append(
            f"| {one.date} | {one.source} | {seed} | {_spaced(one.faults)} "
            f"| {one.violations} | {failed} |"
        )
    faults = _spaced(sum(one.faults for one in found))
    lines.append(f"| | **sum** | | **{faults}** | **{sum(one.violations for one in found)}** | |")
    return "\n".join(lines)


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def page(text: str, found: Sequence[DrillRecord]) -> str:
    """Return the page with the table of these runs.

    Raises:
        ValueError: the page has no place for the table.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE} has no comments around the table")
    return f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{after}"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(), [*records(tracked_files())]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
