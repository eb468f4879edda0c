"""Choose the marks of an axis of durations, and the labels of an axis of times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

POWERS: Final[Sequence[tuple[int, Sequence[int]]]] = (
    (1, (1, 10, 100)),
    (1_000, (1, 10)),
    (60_000, (1, 10)),
    (3_600_000, (1, 10)),
    (86_400_000, (1, 10, 100, 1_000)),
)
"""Units of durations in ms, each with the powers of 10 that multiply the unit in marks."""
TIME_FORMS: Final = (
    (10_000, "%M:%S.%f"),
    (3_600_000, "%H:%M:%S"),
    (86_400_000, "%H:%M"),
    (432_000_000, "%m-%d\n%H:%M"),
)
"""Upper bounds of the spans of time axes in ms, with the forms of their labels."""
DATE_FORM: Final = "%m-%d"


def time_text(at: datetime, span_ms: float) -> str:
    """Return the label of a time; the form depends on the span of the axis."""
    form = next((form for most_ms, form in TIME_FORMS if span_ms < most_ms), DATE_FORM)
    return at.strftime(form)[:-5] if form.endswith("%f") else at.strftime(form)


def duration_ticks(low_ms: float, high_ms: float, ticks_max: int) -> list[int]:
    """Return at most ``ticks_max`` round durations in ms of a range, for a logarithmic axis."""
    coarse = [unit * power for unit, powers in POWERS for power in powers]
    # Twice 10 hours and 5 times 10 seconds are too near to the next power.
    fine = [
        tick * part
        for tick, after in zip(coarse, [*coarse[1:], coarse[-1] * 10], strict=True)
        for part in (1, 2, 5)
        if tick * part * 1.5 < after
    ]
    for choice in (fine, coarse):
        found = [tick for tick in choice if low_ms <= tick <= high_ms]
        if len(found) <= ticks_max:
            return found
    return found[:: -(-len(found) // ticks_max)]
