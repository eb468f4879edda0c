"""Match names of tubes with patterns in which "*" stands for any characters."""

from __future__ import annotations

import re


def is_pattern(source: str) -> bool:
    """Tell whether a source names tubes by a pattern."""
    return "*" in source


def matcher(pattern: str) -> re.Pattern[str]:
    """Return the expression for a pattern in which "*" stands for any characters."""
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")))
