"""The clock of a test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from taskraft._arguments import wrong_type, wrong_value

if TYPE_CHECKING:
    from collections.abc import Callable

EXPECTED = 'a datetime with a time zone, or a text such as "2027-03-28T01:30+01:00"'


class Clock:
    """Reads the time of day of the cluster; `Kit.advance` moves it.

    Args:
        start: time of day at the beginning of the test.
        seconds: returns the time of a clock, which runs from now on.
    """

    def __init__(self, start: datetime, seconds: Callable[[], float]) -> None:
        self.start = start
        self._seconds = seconds
        self._began = seconds()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.now.isoformat(timespec='milliseconds')}>"

    @property
    def now(self) -> datetime:
        """The time of day, in UTC."""
        return self.start + timedelta(seconds=self._seconds() - self._began)

    @property
    def now_ms(self) -> int:
        """The time of day in ms since the Unix epoch, as the API shows it."""
        return round(self.now.timestamp() * 1_000)

    def until(self, instant: datetime | str) -> timedelta:
        """Return the time until an instant that has not passed.

        Raises:
            TypeError, ValueError: the instant has no time zone, or it has passed.
        """
        wanted = instant_from(instant, "instant")
        if wanted < self.now:
            raise ValueError(
                f"the clock cannot go back from {self.now.isoformat()} to {wanted.isoformat()}; "
                'give the kit an earlier start: @pytest.mark.taskraft(start="...")'
            )
        return wanted - self.now


def instant_from(given: datetime | str | None, name: str) -> datetime:
    """Return an instant in UTC; None: the real time of day, in whole seconds.

    Raises:
        TypeError, ValueError: the value is no instant with a time zone.
    """
    if given is None:
        return datetime.now(UTC).replace(microsecond=0)
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise wrong_value(name, EXPECTED, given) from None
    if not isinstance(given, datetime):
        raise wrong_type(name, EXPECTED, given)
    if given.tzinfo is None:
        raise wrong_value(name, EXPECTED, given)
    return given.astimezone(UTC)
