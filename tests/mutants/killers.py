"""Store which test killed which mutant; that test runs first the next time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

KILLERS: Final = Path(__file__).parent / "killers.txt"


def read_killers() -> dict[str, str]:
    """Return the killer of each mutant that was ever killed."""
    if not KILLERS.exists():
        return {}
    lines = KILLERS.read_text().splitlines()
    return dict(line.split(" ", 1) for line in lines)


def write_killers(killers: Mapping[str, str]) -> None:
    """Write what ``read_killers`` reads."""
    KILLERS.write_text("".join(f"{name} {killers[name]}\n" for name in sorted(killers)))
