"""Read durations as people write them; on the wire they are whole milliseconds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, TypeAlias

Duration: TypeAlias = "int | float | str | timedelta"
"""Seconds as a number, or a text such as "250ms", "10s", "1.5m", "2h" or "1h30m"."""

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_TEXT = re.compile(rf"(?:{_PART.pattern})+|\d+(?:\.\d+)?")


def milliseconds(duration: Duration) -> int:
    """Return a duration in whole milliseconds, rounded to the nearest.

    Raises:
        ValueError: It is negative, not finite, or not a duration.
    """
    if isinstance(duration, str):
        return _milliseconds_of_text(duration)
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a duration is a number of seconds from 0, not {duration!r}")
    return round(seconds * 1_000)


def seconds(duration: Duration) -> float:
    """Return a duration in seconds, for timers of this process."""
    return milliseconds(duration) / 1_000


def _milliseconds_of_text(text: str) -> int:
    trimmed = text.replace(" ", "")
    if not _TEXT.fullmatch(trimmed):
        raise ValueError(
            f'a duration is written like "250ms", "10s", "5m" or "1h30m", not {text!r}'
        )
    parts = _PART.findall(trimmed)
    if not parts:
        return round(float(trimmed) * 1_000)
    return round(sum(float(number) * UNITS_MS[unit] for number, unit in parts))
