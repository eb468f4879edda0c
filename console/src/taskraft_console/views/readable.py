"""Format numbers, durations, times and sizes for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

THIN_SPACE: Final = "\u2009"
UNKNOWN: Final = "\u2013"
"""Text for a value that is not known."""
_UNITS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))


def readable_count(number: int) -> str:
    """Return an exact number below 100 000, and a rounded number with k, M or G above."""
    if abs(number) < 100_000:
        return f"{number:,}".replace(",", THIN_SPACE)
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if abs(number) >= size:
            return f"{number / size:.1f}{THIN_SPACE}{unit}"
    return str(number)


def readable_rate(per_second: float | None) -> str:
    """Return a rate per second, never 0 for a rate above 0; None means unknown."""
    if per_second is None:
        return UNKNOWN
    if 0 < per_second < 0.1:
        return "<0.1"
    if per_second < 10:
        return f"{per_second:.1f}".removesuffix(".0")
    return readable_count(round(per_second))


def readable_duration(duration_ms: float) -> str:
    """Return a duration with at most two units."""
    if duration_ms < 1_000:
        return f"{round(duration_ms)}{THIN_SPACE}ms"
    if duration_ms < 10_000:
        return f"{duration_ms / 1_000:.1f}{THIN_SPACE}s"
    seconds = int(duration_ms // 1_000)
    for size, unit, smaller, smaller_unit in _UNITS:
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size}{unit}" + (
                f"{THIN_SPACE}{rest:02}{smaller_unit}" if rest else ""
            )
    return f"{seconds}{THIN_SPACE}s"


def exact_duration(duration_ms: int) -> str:
    """Return a duration in its largest whole unit, as commands accept durations."""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")):
        if duration_ms % size == 0 and duration_ms >= size:
            return f"{duration_ms // size}{unit}"
    return f"{duration_ms}ms"


def readable_bytes(size: int) -> str:
    """Return a size in bytes, kB, MB or GB."""
    if size < 1_000:
        return f"{size}{THIN_SPACE}B"
    for unit_size, unit in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")):
        if size >= unit_size:
            return f"{size / unit_size:.1f}{THIN_SPACE}{unit}"
    return str(size)


def readable_time(at_ms: int) -> str:
    """Return a time in UTC with seconds; a dash for 0."""
    if not at_ms:
        return UNKNOWN
    try:
        return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError):
        return "never"


def iso_time(at_ms: int) -> str:
    """Return a time in the form that browsers parse; empty for 0 and for times without a date."""
    if not at_ms:
        return ""
    try:
        return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):
        return ""


def plain_text(text: str, characters_max: int = 0) -> str:
    """Return a text in which each control character is visible, cut to a maximum length.

    Control characters include the marks that change the direction of text, so that a name cannot
    imitate another name. The thin space of readable numbers stays as it is.
    """
    shown = "".join(
        each if each.isprintable() or each in "\n\t" + THIN_SPACE else _visible(each)
        for each in text
    )
    if characters_max and len(shown) > characters_max:
        return shown[: characters_max - 1] + "…"
    return shown


def _visible(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return f"⟨{code:04X}⟩"
