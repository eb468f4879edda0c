"""Convert the minutes of a date in a time zone to instants, also on dates with a clock change.

A change forwards skips minutes of the wall clock. A skipped minute counts at the end of the gap,
unless the pattern matches every hour: such a pattern follows elapsed time. A change backwards
repeats minutes. Of a repeated minute, a fixed time uses only the first occurrence; a pattern with a
star uses both.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

MINUTE_MS: Final = 60_000
DAY_MS: Final = 86_400_000
DAYS_CACHED_MAX: Final = 8
_MARGIN: Final = timedelta(hours=3)
"""Distance from a date within which a clock change can affect the minutes of the date."""
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall-clock time without a zone
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MS: Final = timedelta(milliseconds=1)
_NONE: Final = timedelta(0)


class WallClock:
    """The wall clock of a time zone."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self.is_regular = lru_cache(DAYS_CACHED_MAX)(self._is_regular)

    def day_of(self, at_ms: int) -> int:
        """Return the date at an instant, as an ordinal."""
        at = datetime.fromtimestamp(0, UTC) + at_ms * _MS
        return at.astimezone(self._zone).date().toordinal()

    def start_ms(self, day: int) -> int:
        """Return the first instant of a date; if its midnight is skipped, the end of the gap."""
        midnight = (day - _EPOCH_DAY) * DAY_MS
        return midnight - self._offset(_naive(day)) // _MS

    def _is_regular(self, day: int) -> bool:
        """Return whether no clock change is near a date."""
        start = _naive(day)
        return self._offset(start - _MARGIN) == self._offset(start + timedelta(days=1) + _MARGIN)

    def instants(
        self, day: int, minutes: Sequence[int], *, is_fixed: bool, is_hourly: bool
    ) -> Sequence[int]:
        """Return the instants of the minutes of a date with a clock change, in order, each once."""
        found: set[int] = set()
        gap_ms: int | None = None
        for minute in minutes:
            at = _naive(day) + timedelta(minutes=minute)
            first, second = self._offset(at), self._offset(at.replace(fold=1))
            first_ms = (at - first - _EPOCH) // _MS
            if first == second:
                found.add(first_ms)
            elif first > second:
                found.add(first_ms)
                if not is_fixed:
                    found.add((at - second - _EPOCH) // _MS)
            elif not is_hourly:
                if gap_ms is None:
                    gap_ms = self._change_ms((at - second - _EPOCH) // _MS, first_ms)
                found.add(gap_ms)
        return sorted(found)

    def _change_ms(self, before_ms: int, at_ms: int) -> int:
        """Return the instant of the clock change after ``before_ms``, at latest at ``at_ms``."""
        before = self._offset_at(before_ms)
        while at_ms - before_ms > 1:
            middle_ms = (before_ms + at_ms) // 2
            if self._offset_at(middle_ms) == before:
                before_ms = middle_ms
            else:
                at_ms = middle_ms
        return at_ms

    def _offset(self, at: datetime) -> timedelta:
        """Return the offset of the zone from UTC at a wall-clock time."""
        return at.replace(tzinfo=self._zone).utcoffset() or _NONE

    def _offset_at(self, at_ms: int) -> timedelta:
        """Return the offset of the zone from UTC at an instant."""
        at = datetime.fromtimestamp(0, UTC) + at_ms * _MS
        return at.astimezone(self._zone).utcoffset() or _NONE


def _naive(day: int) -> datetime:
    return _EPOCH + timedelta(days=day - _EPOCH_DAY)
