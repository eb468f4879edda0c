"""Store which test killed each mutant; that test runs first in the next run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

KILLERS: Final = Path(__file__).parent / "killers.txt"


def read_killers() -> dict[str, str]:
    """Return the last killer of each mutant that was ever killed."""
    if not KILLERS.exists():
        return {}
    lines = KILLERS.read_text().splitlines()
    return dict(line.split(" ", 1) for line in lines)


def write_killers(killers: Mapping[str, str]) -> None:
    """Write the file that ``read_killers`` reads."""
    KILLERS.write_text("".join(f"{name} {killers[name]}\n" for name in sorted(killers)))
