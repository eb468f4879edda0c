"""Count failures by tube and fingerprint, in bounded memory.

Failures with the same fingerprint have the same reason and the same message apart from ids and
numbers. A tube has at most ``FINGERPRINTS_MAX`` rows of its own and one row for all other failures.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from taskraft_service.queue.feed.failure_events import FailureEvent

HOUR_MS: Final = 3_600_000
HOURS: Final = 24
"""Number of hours for which a row has counts of their own."""
FINGERPRINTS_MAX: Final = 256
"""Maximum number of fingerprints of a tube with rows of their own."""
OTHERS: Final = 0
"""Fingerprint of the row for the other failures of a tube; no failure has it."""
TUBES_MAX: Final = 200
"""Maximum number of tubes with counts: the tubes that failed last."""
ROWS_MAX: Final = 16_384
"""Maximum number of rows of all tubes."""

_NO_HOURS: Final = bytes(8 * HOURS)


class FailureRow:
    """The counts of one fingerprint of a tube.

    Attributes:
        reason: class of the failures in UTF-8; empty in the row for other failures.
        given_up: number of these failures after which the task was buried, removed, or moved to
            the dead-letter tube.
        task_id: id of the task that failed last.
        message: message of the last failure in UTF-8, at most 256 bytes.
    """

    __slots__ = (
        "_hour",
        "_hours",
        "count",
        "fingerprint",
        "first_ms",
        "given_up",
        "last_ms",
        "message",
        "reason",
        "task_id",
    )

    def __init__(self, fingerprint: int, reason: str) -> None:
        """Make a row without failures."""
        self.fingerprint = fingerprint
        self.reason = reason.encode()
        self.count = 0
        self.given_up = 0
        self.first_ms = 0
        self.last_ms = 0
        self.task_id = 0
        self.message = b""
        self._hours = array("q")
        self._hour = -HOURS
        """The newest hour with a count, as hours since the Unix epoch."""

    def add(self, event: FailureEvent) -> None:
        """Count a failure."""
        at_ms = event.at_ms
        self.count += 1
        self.given_up += event.is_given_up
        if not self.first_ms or at_ms < self.first_ms:
            self.first_ms = at_ms
        if at_ms >= self.last_ms:
            self.last_ms = at_ms
            self.task_id = event.task_id
            self.message = event.message.encode()
        self._add_hour(at_ms // HOUR_MS, 1)

    def merge(self, other: FailureRow) -> None:
        """Add the counts of another row."""
        self.count += other.count
        self.given_up += other.given_up
        self.first_ms = min(self.first_ms or other.first_ms, other.first_ms)
        if other.last_ms >= self.last_ms:
            self.last_ms, self.task_id = other.last_ms, other.task_id
            self.message = other.message
        for hour in range(other._hour - HOURS + 1, other._hour + 1):
            self._add_hour(hour, other._hours[hour % HOURS])

    def _add_hour(self, hour: int, count: int) -> None:
        newest = self._hour
        if hour >= newest + HOURS:
            self._hours = array("q", _NO_HOURS)
            self._hour = hour
        elif hour > newest:
            for passed in range(newest + 1, hour + 1):
                self._hours[passed % HOURS] = 0
            self._hour = hour
        elif hour <= newest - HOURS:
            return
        self._hours[hour % HOURS] += count

    def hours(self, now_ms: int) -> list[int]:
        """Return the number of failures in each of the last 24 hours, oldest first.

        Hours begin at full hours of UTC. The last one is the hour of ``now_ms``.
        """
        now, newest = now_ms // HOUR_MS, self._hour
        return [
            self._hours[hour % HOURS] if newest - HOURS < hour <= newest else 0
            for hour in range(now - HOURS + 1, now + 1)
        ]


class TubeFailures:
    """The rows of one tube.

    Args:
        since_ms: instant from which on all failures of the tube are counted.
    """

    __slots__ = ("_others", "_rows", "last_ms", "since_ms")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.last_ms = 0
        self._rows: OrderedDict[int, FailureRow] = OrderedDict()
        """Rows by fingerprint; the row that failed last is the last."""
        self._others: FailureRow | None = None

    def __len__(self) -> int:
        return len(self._rows) + (self._others is not None)

    def rows(self) -> list[FailureRow]:
        """Return the rows in order of their fingerprints."""
        found = list(self._rows.values())
        if self._others is not None:
            found.append(self._others)
        return sorted(found, key=lambda row: row.fingerprint)

    def add(self, event: FailureEvent) -> None:
        """Count a failure."""
        self.last_ms = max(self.last_ms, event.at_ms)
        row = self._rows.get(event.fingerprint)
        if row is not None:
            self._rows.move_to_end(event.fingerprint)
        elif len(self._rows) < FINGERPRINTS_MAX or self._fold_oldest(event.at_ms):
            row = FailureRow(event.fingerprint, event.reason)
            self._rows[event.fingerprint] = row
        else:
            row = self._other_failures()
        row.add(event)

    def _other_failures(self) -> FailureRow:
        if self._others is None:
            self._others = FailureRow(OTHERS, "")
        return self._others

    def _fold_oldest(self, now_ms: int) -> bool:
        """Add the least recent row to the other failures, if its last failure is 24 hours old."""
        oldest = next(iter(self._rows.values()))
        if oldest.last_ms > now_ms - HOURS * HOUR_MS:
            return False
        del self._rows[oldest.fingerprint]
        self._other_failures().merge(oldest)
        return True


class FailureCounts:
    """The counts of all tubes; the tube that failed least recently is dropped for a new one."""

    def __init__(self) -> None:
        """Make counts without failures."""
        self.since_ms = 0
        """Instant from which on failures are counted; earlier failures are ignored."""
        self._tubes: OrderedDict[str, TubeFailures] = OrderedDict()
        self._rows = 0
        self._complete_ms = 0
        """Instant from which on a new tube has all failures: those of dropped tubes are older."""

    def clear(self, since_ms: int) -> None:
        """Drop all counts, and count failures from an instant on."""
        self.since_ms = since_ms
        self._tubes.clear()
        self._rows = self._complete_ms = 0

    def add(self, event: FailureEvent) -> None:
        """Count a failure; a failure before ``since_ms`` of its tube is ignored."""
        found = self._tubes.get(event.tube)
        if found is None:
            found = TubeFailures(max(self.since_ms, self._complete_ms))
        if event.at_ms < found.since_ms:
            return
        self._tubes[event.tube] = found
        self._tubes.move_to_end(event.tube)
        before = len(found)
        found.add(event)
        self._rows += len(found) - before
        while len(self._tubes) > TUBES_MAX or self._rows > ROWS_MAX:
            _, dropped = self._tubes.popitem(last=False)
            self._rows -= len(dropped)
            self._complete_ms = max(self._complete_ms, dropped.last_ms + 1)

    def tube_names(self) -> Sequence[str]:
        """Return the names of the tubes with counts, in order."""
        return sorted(self._tubes)

    def tube(self, name: str) -> TubeFailures | None:
        """Return the rows of a tube, or None without counted failures."""
        return self._tubes.get(name)
