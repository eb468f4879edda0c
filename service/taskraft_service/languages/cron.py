"""Compute the times of a cron expression in a time zone.

Only the leader computes them, for schedules. The computed times are stored in the log, so nodes
need not have the same version of the time-zone data. ``wall_clock`` describes clock changes.
Source: crontab(5). The library cronsim parses the expressions.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSimError

from taskraft_service.languages.cron_pattern import CronPattern
from taskraft_service.languages.wall_clock import MINUTE_MS, WallClock

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
STEPS_MAX: Final = {"minute": 60, "hour": 24, "day-of-month": 31, "month": 12, "day-of-week": 8}
"""The greatest step of each field: the number of its values."""
LOCAL_ZONES: Final = frozenset({"localtime", "posixrules", "Factory", "posix", "right"})
"""Files and folders of a machine's time-zone data that are no names of the IANA database."""
_NO_DATE: Final = "no such date: the months have no such day, so no time ever matches"


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

    def __init__(self, pattern: CronPattern, zone: tzinfo) -> None:
        self._pattern = pattern
        self._zone = WallClock(zone)

    def after(self, at_ms: int) -> int | None:
        """Return the first time after an instant, or None."""
        return next(self.times(at_ms), None)

    def times(self, after_ms: int) -> Iterator[int]:
        """Yield the times after an instant in order, each once.

        Times around midnight can be out of order on a date with a clock change, so they are held
        back until no later date can have an earlier time.
        """
        if after_ms >= HORIZON_MS:
            return
        last_ms = after_ms
        held: list[int] = []
        for day in self._pattern.days(self._zone.day_of(after_ms) - 1, step=1):
            first_ms = self._zone.start_ms(day)
            while held and held[0] < first_ms:
                last_ms = held.pop(0)
                yield last_ms
            times = self._times_of(day, last_ms)
            if held or not self._zone.is_regular(day):
                held = sorted({*held, *times})
                continue
            for at_ms in times:
                last_ms = at_ms
                yield at_ms
        yield from held

    def latest(self, after_ms: int, until_ms: int) -> int | None:
        """Return the last time after ``after_ms`` and not after ``until_ms``, or None.

        The cost depends on how rare the times are, not on their number within the range.
        """
        until_ms = min(until_ms, HORIZON_MS)
        found_day, found_ms = None, after_ms
        for day in self._pattern.days(self._zone.day_of(until_ms) + 1, step=-1):
            if found_day is not None and day < found_day - 1:
                break
            if self._zone.start_ms(day + 3) < after_ms:
                break
            times = [at_ms for at_ms in self._times_of(day, found_ms) if at_ms <= until_ms]
            if times:
                found_ms = times[-1]
                found_day = found_day or day
        return found_ms if found_day is not None else None

    def _times_of(self, day: int, after_ms: int) -> Sequence[int]:
        """Return the times of one date after an instant, in order."""
        minutes = self._pattern.minutes
        if self._zone.is_regular(day):
            start_ms = self._zone.start_ms(day)
            place = bisect_right(minutes, (after_ms - start_ms) // MINUTE_MS)
            times: Sequence[int] = [start_ms + minute * MINUTE_MS for minute in minutes[place:]]
        else:
            times = self._zone.instants(
                day, minutes, is_fixed=self._pattern.is_fixed, is_hourly=self._pattern.is_hourly
            )
        return [at_ms for at_ms in times if after_ms < at_ms < HORIZON_MS]


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
    _check_numbers(expression)
    try:
        found = Cron(CronPattern(expression), zone)
    except CronSimError as error:
        raise _malformed(expression, str(error)) from error
    if found.after(0) is None:
        raise CronMalformed("cron", _NO_DATE)
    return found


def _zone(name: str) -> tzinfo:
    if not name:
        return UTC
    if name.split("/", maxsplit=1)[0] in LOCAL_ZONES:
        text = f"{name[:64]!r} names a setting of one machine, not a time zone of the IANA database"
        raise CronMalformed("time_zone", text)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        # The name is not in the time-zone data, or its path leaves the data folder.
        raise CronMalformed("time_zone", f"{name[:64]!r} is not a known time zone") from error


def _check_numbers(expression: str) -> None:
    """Check the size of the numbers and steps, of which the parser accepts any.

    Raises:
        CronMalformed: a number has more than 2 digits, or a step exceeds the number of values.
    """
    for (name, allowed), field in zip(FIELDS.items(), re.finditer(r"\S+", expression), strict=True):
        for number in re.finditer(r"(/?)(\d+)", field.group()):
            is_step, digits = number.groups()
            if len(digits) > 2:
                text = f"{name} has a number of {len(digits)} digits; allowed are {allowed}"
            elif is_step and int(digits) > STEPS_MAX[name]:
                text = f"{name} has the step {digits}; the greatest is {STEPS_MAX[name]}"
            else:
                continue
            position = field.start() + number.start(2)
            raise CronMalformed("cron", f"{text}, at character {position}", position)


def _malformed(expression: str, told: str) -> CronMalformed:
    """Return an error with the invalid field, its position, value and allowed values.

    ``told`` is cronsim's message, for example "Bad minute". The parser also refuses a day that none
    of the months has.
    """
    name = told.removeprefix("Bad ")
    if name not in FIELDS:
        return CronMalformed("cron", told)
    if name == "day-of-month" and _is_valid_in_any_month(expression):
        return CronMalformed("cron", _NO_DATE)
    field = list(re.finditer(r"\S+", expression))[list(FIELDS).index(name)]
    text = f"{name} {field.group()!r} is not a pattern of {FIELDS[name]}"
    return CronMalformed("cron", f"{text}, at character {field.start()}", field.start())


def _is_valid_in_any_month(expression: str) -> bool:
    """Return whether an expression would be valid if its months were not limited."""
    minute, hour, day, _, weekday = expression.split()
    try:
        CronPattern(f"{minute} {hour} {day} * {weekday}")
    except CronSimError:
        return False
    return True
