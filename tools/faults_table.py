"""Write the table of faults in docs/storage.md from the tests: `python -m tools.faults_table`.

A test that shows the reaction to a fault has the marker ``shows_fault(part, fault, reaction)``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "storage.md"
MARKER: Final = "shows_fault"
PARTS: Final = ("process", "log and vote", "state", "copies", "disk", "directory")
"""Parts of a node, in the order of the table."""
BEGIN: Final = "<!-- Written by `python -m tools.faults_table` from the tests; do not edit. -->"
END: Final = "<!-- End of the table. -->"


@dataclass(frozen=True, order=True)
class ShownFault:
    """A fault, the reaction of a node, and the test that shows the reaction."""

    place: int
    """Position of the part in ``PARTS``."""
    fault: str
    reaction: str
    test: str
    """File of the test, below the root of the repository."""


def faults_in(path: Path) -> Iterator[ShownFault]:
    """Yield the faults that the tests of a file show.

    Raises:
        ValueError: a marker has other arguments than three texts, or an unknown part.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != MARKER:
            continue
        texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
        if len(texts) != 3 or texts[0] not in PARTS:
            raise ValueError(f"{path}:{node.lineno}: {MARKER} needs a part, a fault and a reaction")
        part, fault, reaction = (str(text) for text in texts)
        yield ShownFault(PARTS.index(part), fault, reaction, str(path.relative_to(ROOT)))


def table() -> str:
    """Return the table as Markdown."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    found = sorted(fault for path in tests for fault in faults_in(path))
    lines = ["| part | fault | reaction of the node | shown by |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {PARTS[each.place]} | {each.fault} | {each.reaction} | `{each.test}` |"
        for each in found
    ]
    return "\n".join(lines)


def page(text: str) -> str:
    """Return the page with the table of now.

    Raises:
        ValueError: the page has no place for the table.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE} has no comments around the table")
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
