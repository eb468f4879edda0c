"""Compute the times of a cron expression in a time zone.

Only the leader computes them, for schedules. The computed times are stored in the log, so nodes
need not have the same version of the time-zone data. Clock changes are handled as in Debian's cron.
A time in a skipped hour is moved to the end of this hour. A fixed hour that occurs twice counts
once. An hourly pattern follows elapsed hours. Source: crontab(5); the library cronsim steps through
the times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

FIELDS: Final = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, or L",
    "month": "1 to 12, or names",
    "day-of-week": "0 to 7, or names",
}
"""The fields of an expression in order, with their allowed values."""
EXPRESSION_BYTES_MAX: Final = 256
HORIZON_MS: Final = 253_370_764_800_000
"""Start of the year 9999; later times do not occur."""
CRONS_CACHED_MAX: Final = 1_024
_MINUTE_MS: Final = 60_000
_SLACK_MS: Final = 10_800_000
"""Distance from a clock change within which wall-clock steps may be out of order."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class CronMalformed(ValueError):
    """The expression or the time zone is invalid; ``field`` names the invalid part.

    Attributes:
        field: ``cron`` or ``time_zone``.
        position: offset of the error in characters, from 0.
    """

    def __init__(self, field: str, text: str, position: int = 0) -> None:
        super().__init__(text)
        self.field = field
        self.position = position


class Cron:
    """The times of one expression in one time zone; created by ``cron``."""

    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._expression = expression
        self._zone = zone

    def after(self, at_ms: int) -> int | None:
        """Return the first time after an instant, or None."""
        return next(self.times(at_ms), None)

    def times(self, after_ms: int) -> Iterator[int]:
        """Yield the times after an instant in order, each once."""
        last_ms = after_ms
        if after_ms >= HORIZON_MS:
            return
        try:
            for at in CronSim(self._expression, self._begin(after_ms)):
                at_ms = (at - _EPOCH) // _MS
                if at_ms > last_ms:
                    last_ms = at_ms
                    yield at_ms
        except OverflowError:
            return

    def latest(self, after_ms: int, until_ms: int) -> int | None:
        """Return the last time after ``after_ms`` and not after ``until_ms``, or None.

        The cost depends on how rare the times are, not on their number within the range.
        """
        until_ms = min(until_ms, HORIZON_MS)
        begin_ms = self._before(until_ms - self._slack(until_ms))
        begin_ms -= self._slack(begin_ms)
        last_ms = None
        for at_ms in self.times(max(after_ms, begin_ms)):
            if at_ms > until_ms:
                break
            last_ms = at_ms
        return last_ms

    def _before(self, at_ms: int) -> int:
        """Return approximately the last time before an instant; the Unix epoch if there is none.

        Backward steps handle clock changes differently, so the result is only a starting point.
        """
        at = next(CronSim(self._expression, self._local(at_ms), reverse=True), _EPOCH)
        return (at - _EPOCH) // _MS

    def _slack(self, at_ms: int) -> int:
        """Return the maximum error of a backward step at an instant."""
        before, later = self._local(at_ms - _SLACK_MS), self._local(at_ms + _SLACK_MS)
        return _MINUTE_MS if before.utcoffset() == later.utcoffset() else _SLACK_MS

    def _begin(self, at_ms: int) -> datetime:
        """Return the wall-clock time at which a search for matching times starts.

        The search starts earlier after a change of the offset, for example before an hour that
        occurs twice.
        """
        at, before = self._local(at_ms), self._local(at_ms - _SLACK_MS)
        return at if at.utcoffset() == before.utcoffset() else before

    def _local(self, at_ms: int) -> datetime:
        return (_EPOCH + at_ms * _MS).astimezone(self._zone)


@lru_cache(CRONS_CACHED_MAX)
def cron(expression: str, time_zone: str) -> Cron:
    """Parse an expression of five fields in a time zone; an empty zone name means UTC.

    Raises:
        CronMalformed: the expression or the zone is invalid, or no time ever matches.
    """
    zone = _zone(time_zone)
    if len(expression.encode()) > EXPRESSION_BYTES_MAX:
        raise CronMalformed("cron", f"longer than {EXPRESSION_BYTES_MAX} bytes")
    fields = len(expression.split())
    if fields != len(FIELDS):
        raise CronMalformed("cron", f"{fields} fields, expected {len(FIELDS)}")
    try:
        CronSim(expression, _EPOCH)
    except CronSimError as error:
        raise _malformed(expression, str(error)) from error
    found = Cron(expression, zone)
    if found.after(0) is None:
        raise CronMalformed("cron", "no time ever matches")
    return found


def _zone(name: str) -> tzinfo:
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        # The name is not in the time-zone data, or its path leaves the data folder.
        raise CronMalformed("time_zone", f"{name[:64]!r} is not a known time zone") from error


def _malformed(expression: str, told: str) -> CronMalformed:
    """Return an error with the invalid field, its position, value and allowed values.

    ``told`` is cronsim's message, for example "Bad minute".
    """
    name = told.removeprefix("Bad ")
    if name not in FIELDS:
        return CronMalformed("cron", told)
    field = list(re.finditer(r"\S+", expression))[list(FIELDS).index(name)]
    text = f"{name} {field.group()!r} is not a pattern of {FIELDS[name]}"
    return CronMalformed("cron", f"{text}, at character {field.start()}", field.start())
