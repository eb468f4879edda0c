"""The span of time that the charts of a page show: the recent past, or a span in the address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from taskraft._durations import milliseconds
from taskraft_console.pages.page import FormRefused, PageVisit

YEAR_MIN: Final = 1971
YEAR_MAX: Final = 9000
HOUR_MS: Final = 3_600_000
NAMES: Final = ("window", "from", "to")
"""Names of the values in an address that choose the span."""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A span of time of the charts of a page."""

    query: Mapping[str, str]
    """The values in the address that choose this span, for links."""
    is_day: bool
    """True: the samples are those of one day, at 120 s; False: those of one hour, at 10 s."""
    begin_ms: int | None = None
    """First instant, in ms since 1970; None: the span ends now."""
    end_ms: int | None = None
    """Last instant, in ms since 1970; None: the span ends now."""

    def has(self, at_ms: int) -> bool:
        """Return whether an instant is in the span."""
        if self.begin_ms is None or self.end_ms is None:
            return True
        return self.begin_ms <= at_ms <= self.end_ms


async def time_window_of(visit: PageVisit) -> TimeWindow:
    """Return the span of time that the address of a page names.

    `to` is an instant, or a time before now such as -10m; without `to`, the span ends now. `from`
    is an instant, or a time before `to`, by default -1h.

    Raises:
        FormRefused: an end is no time, or the span is empty.
    """
    query = {name: visit.query[name] for name in NAMES if visit.query.get(name)}
    if not query.get("from") and not query.get("to"):
        is_day = query.get("window") == "24h"
        return TimeWindow({"window": "24h" if is_day else "1h"}, is_day)
    now_ms = visit.value(await visit.cluster.total()).now_ms
    end_ms = _instant_ms(query.get("to", "-0s"), now_ms)
    begin_ms = _instant_ms(query.get("from", "-1h"), end_ms)
    if begin_ms >= end_ms:
        raise FormRefused("The span ends before it begins.")
    query.pop("window", None)
    return TimeWindow(query, now_ms - begin_ms > HOUR_MS, begin_ms, end_ms)


async def shown_window(visit: PageVisit) -> TimeWindow:
    """Return the span of time of a page; a mistake in the address is noted in the visit."""
    try:
        return await time_window_of(visit)
    except FormRefused as error:
        visit.failure = str(error)
        return TimeWindow({"window": "1h"}, is_day=False)


def _instant_ms(text: str, before_ms: int) -> int:
    """Return an instant in ms since 1970; a text such as -1h is a time before another instant.

    Raises:
        FormRefused: the text is no time.
    """
    if not text.startswith("-"):
        return round(instant_of(text).timestamp() * 1_000)
    try:
        return before_ms - milliseconds(text.removeprefix("-"), "from")
    except (ValueError, TypeError):
        raise FormRefused(f"{text!r} is no time such as -1h or 2026-03-29T02:30Z") from None


def instant_of(text: str) -> datetime:
    """Return the instant of an RFC 3339 text; without a zone, the text is in UTC.

    Raises:
        FormRefused: the text is no instant.
    """
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise FormRefused(f"{text!r} is no time such as 2026-03-29T02:30") from None
    if not YEAR_MIN <= at.year <= YEAR_MAX:
        raise FormRefused(f"{text!r} is not between the years {YEAR_MIN} and {YEAR_MAX}.")
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at
