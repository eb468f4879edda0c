"""Parse durations; the API counts whole milliseconds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from taskraft._arguments import wrong_type, wrong_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from google.protobuf.message import Message

Duration: TypeAlias = "int | float | str | timedelta"
"""Seconds as a number, or a string such as "250ms", "10s", "1.5m", "2h" or "1h30m".  The server
treats 100 years or more, including ``math.inf``, as no limit."""

MILLISECONDS_MAX: Final = (1 << 63) - 1
"""Largest duration of the API; longer durations are cut to this value."""

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_TEXT = re.compile(rf"(?:{_PART.pattern})+|\d+(?:\.\d+)?")


EXPECTED: Final = 'a number of seconds from 0, or a string like "250ms", "10s", "5m" or "1h30m"'


def milliseconds(duration: Duration, name: str) -> int:
    """Return a duration in whole milliseconds, rounded; `name` is the name of the argument.

    Raises:
        TypeError: the value is neither a number, a string nor a timedelta.
        ValueError: the value is negative or not a duration.
    """
    if isinstance(duration, str):
        return _rounded(_milliseconds_of_text(duration, name))
    number: object = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise wrong_type(name, EXPECTED, duration)
    if not number >= 0:
        raise wrong_value(name, EXPECTED, duration)
    return _rounded(number * 1_000)


def seconds(duration: Duration, name: str) -> float:
    """Return a duration in seconds, for timers of this process."""
    return milliseconds(duration, name) / 1_000


def set_durations(
    message: Message, fields: Iterable[tuple[str, str]], given: Mapping[str, object]
) -> None:
    """Set the duration fields that are given; `fields` are pairs of argument name and field."""
    for name, field in fields:
        if name in given:
            setattr(message, field, milliseconds(given[name], name))  # type: ignore[arg-type]  # checks the type


def _rounded(number: float) -> int:
    return round(number) if number < MILLISECONDS_MAX else MILLISECONDS_MAX


def _milliseconds_of_text(text: str, name: str) -> float:
    trimmed = text.replace(" ", "")
    if not _TEXT.fullmatch(trimmed):
        raise wrong_value(name, EXPECTED, text)
    parts = _PART.findall(trimmed)
    if not parts:
        return float(trimmed) * 1_000
    return sum(float(number) * UNITS_MS[unit] for number, unit in parts)
