"""Check that every function named in the tables of docs/raft.md exists."""

import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "raft.md"
CELL = re.compile(r"`(\w+\.\w+)`")


def places() -> set[str]:
    """Return the names in the last column of the tables of rules, invariants and faults."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return {name for row in rows for name in CELL.findall(row.rsplit("|", 2)[1])}


def definitions() -> set[str]:
    """Return the functions of ``replication`` and of the simulation, with their class or module."""
    found = set()
    for folder in ("replication", "tests/sim"):
        for path in (ROOT / folder).rglob("[a-z]*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            module = import_module(name)
            for name, thing in vars(module).items():
                found.add(f"{path.stem}.{name}")
                if isinstance(thing, type):
                    found |= {f"{name}.{each}" for each in vars(thing)}
    return found


def test_each_function_that_the_page_names_exists():
    named = places()
    assert len(named) > 50
    assert not named - definitions()
