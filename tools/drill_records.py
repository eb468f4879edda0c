"""Keep the results of drill runs as small files, which docs/reliability.md adds up.

``make drill`` writes a file of each run. A file counts once it is committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent.parent / "bench" / "results" / "drills"


class RecordMalformed(Exception):
    """A file of results lacks a field, has another one, or a value of the wrong type."""


@dataclass(frozen=True, kw_only=True)
class DrillRecord:
    """One run of drills; None: the figure was not recorded."""

    date: str
    """Date of the run, as YYYY-MM-DD."""
    source: str
    """How to repeat the run, or where its figures were written first."""
    seed: int | None
    drills: int | None
    """Number of drills that were run."""
    faults: int
    operations: int | None
    puts: int | None
    """Acknowledged tasks."""
    violations: int
    """Broken promises, and what hostile callers achieved."""
    failed: tuple[str, ...]
    """Drills that did not end, broke a promise, or were unavailable for too long."""


def write_record(record: DrillRecord, path: Path) -> None:
    """Write one file of results; create its folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(record), indent=1) + "\n")


def read_record(path: Path) -> DrillRecord:
    """Read one file of results.

    Raises:
        RecordMalformed: the file is no record.
    """
    found = json.loads(path.read_text())
    wanted = {field.name for field in fields(DrillRecord)}
    if not isinstance(found, dict) or found.keys() != wanted:
        raise RecordMalformed(f"{path.name}: the fields must be {', '.join(sorted(wanted))}")
    for name in ("faults", "violations"):
        if type(found[name]) is not int or found[name] < 0:
            raise RecordMalformed(f"{path.name}: {name} is {found[name]!r}")
    return DrillRecord(**{**found, "failed": tuple(found["failed"])})


def records(paths: list[Path]) -> Iterator[DrillRecord]:
    """Yield the records in some files, in the order of their dates."""
    yield from sorted(map(read_record, paths), key=lambda one: one.date)
