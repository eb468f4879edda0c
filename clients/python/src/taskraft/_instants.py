"""Convert between instants of the API, in ms since the Unix epoch, and `datetime`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from taskraft._arguments import wrong_type, wrong_value

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def instant_of(at_ms: int) -> datetime | None:
    """Return an instant in UTC; None for 0, which means that there is no instant."""
    return EPOCH + at_ms * _MILLISECOND if at_ms else None


def instant_ms(name: str, at: object) -> int:
    """Return an instant in ms since the Unix epoch; `name` is the name of the argument.

    Raises:
        TypeError: the value is not a datetime.
        ValueError: the datetime has no time zone.
    """
    if not isinstance(at, datetime):
        raise wrong_type(name, "a datetime with a time zone", at)
    if at.utcoffset() is None:
        raise wrong_value(name, "a datetime with a time zone, such as datetime.now(UTC)", at)
    return round((at - EPOCH) / _MILLISECOND)
