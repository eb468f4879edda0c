"""Match dates and minutes with a cron expression, without a time zone.

Days are numbered as in ``datetime.date.toordinal``.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Final

from cronsim import CronSim

YEARS_SEARCHED_MAX: Final = 50
"""Maximum distance between two dates of an expression. Without the end of a century, a 29 February
falls on the same weekday every 28 years, at most after 40 years."""
YEAR_MAX: Final = 9_999
_YEAR_MIN: Final = 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class CronPattern:
    """A parsed expression.

    Attributes:
        minutes: the matching minutes of a day, from 0 to 1 439, in order.
        is_fixed: whether neither the minute nor the hour begins with a star.
        is_hourly: whether the hour begins with a star and every hour matches.

    Raises:
        CronSimError: the expression is invalid.
    """

    def __init__(self, expression: str) -> None:
        self._parsed = CronSim(expression, _EPOCH)
        minute, hour = expression.split()[:2]
        self.is_fixed: Final = not (minute.startswith("*") or hour.startswith("*"))
        self.is_hourly: Final = hour.startswith("*") and len(self._parsed.hours) == 24

    @cached_property
    def minutes(self) -> Sequence[int]:
        """The matching minutes of a day."""
        parsed = self._parsed
        return [
            hour * 60 + minute for hour in sorted(parsed.hours) for minute in sorted(parsed.minutes)
        ]

    def days(self, day: int, *, step: int) -> Iterator[int]:
        """Yield the matching dates from ``day`` on, forwards (step 1) or backwards (step -1).

        Ends when no date matches for ``YEARS_SEARCHED_MAX`` years.
        """
        begin = date.fromordinal(day)
        year, month, last_year = begin.year, begin.month, begin.year
        while _YEAR_MIN <= year <= YEAR_MAX and abs(year - last_year) <= YEARS_SEARCHED_MAX:
            if month in self._parsed.months:
                for found in self._days_of(year, month)[::step]:
                    if (found - day) * step >= 0:
                        last_year = year
                        yield found
            month += step
            if not 1 <= month <= 12:
                year, month = year + step, 1 if step > 0 else 12

    def _days_of(self, year: int, month: int) -> Sequence[int]:
        """Return the matching dates of a month."""
        start = date(year, month, 1).toordinal()
        length = calendar.monthrange(year, month)[1]
        return [day for day in range(start, start + length) if self._matches(day)]

    def _matches(self, day: int) -> bool:
        """Return whether a date matches the day of the month and the day of the week.

        As in Debian's cron, both must match if one of the fields begins with a star.
        """
        parsed, shown = self._parsed, date.fromordinal(day)
        if parsed.day_and:
            return parsed.match_dom(shown) and parsed.match_dow(shown)
        return parsed.match_dom(shown) or parsed.match_dow(shown)
