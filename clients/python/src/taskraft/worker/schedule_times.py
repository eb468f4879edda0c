"""Check the cron expression and the time zone of a task's schedule, as the server checks them.

The library cronsim, which the server uses too, parses the expressions. A test compares both checks.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

EXPRESSION_BYTES_MAX: Final = 256
STEPS_MAX: Final = {"minute": 60, "hour": 24, "day-of-month": 31, "month": 12, "day-of-week": 8}
"""The fields of an expression in order, with the greatest step that the server accepts."""
LOCAL_ZONES: Final = frozenset({"localtime", "posixrules", "Factory", "posix", "right"})
"""Files and folders of a machine's time-zone data that are no names of the IANA database."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def check_cron(expression: str) -> None:
    """Raise ValueError if the server would refuse a cron expression.

    The server refuses an expression of more than 256 bytes, without five fields, or without times.
    """
    fields = expression.split()
    if len(expression.encode()) > EXPRESSION_BYTES_MAX or len(fields) != len(STEPS_MAX):
        raise ValueError(
            f"cron must have five fields, such as '30 2 * * *' for half past two, and at most "
            f"{EXPRESSION_BYTES_MAX} bytes; not {expression[:64]!r}"
        )
    for (name, step_max), field in zip(STEPS_MAX.items(), fields, strict=True):
        for slash, digits in re.findall(r"(/?)(\d+)", field):
            if len(digits) > 2 or (slash and int(digits) > step_max):
                raise ValueError(f"cron has the number {digits:.20} in {name}, which is too large")
    try:
        first = next(CronSim(expression, _EPOCH), None)
    except CronSimError as error:
        raise ValueError(f"cron is not valid: {error}, in {expression!r}") from error
    if first is None:
        raise ValueError(f"cron never has a time, because no month has such a day: {expression!r}")


def check_time_zone(name: str) -> None:
    """Raise ValueError if a text is no name of the IANA database; an empty name means UTC."""
    if not name:
        return
    if name.split("/", maxsplit=1)[0] in LOCAL_ZONES:
        raise ValueError(f"time_zone {name[:64]!r} is a setting of one machine, not a time zone")
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        # The name is not in the time-zone data, or its path leaves the data folder.
        raise ValueError(f"time_zone {name[:64]!r} is not a known time zone") from error
