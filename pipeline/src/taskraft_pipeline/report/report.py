"""The numbers of a report as plain values.

Times are in ms. A task waits from the time it becomes READY until it is taken. It runs from the
take until it is acknowledged, released or buried, or until its TTR expires.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALL_TUBES: Final = "all tubes"
QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Percentiles to compute, in this order."""
BUCKETS_MAX: Final = 120
"""Maximum number of time buckets."""
BUCKET_WIDTHS_MS: Final = tuple(
    number * unit
    for unit, numbers in (
        (1, (10, 20, 50, 100, 200, 500)),
        (1_000, (1, 2, 5, 10, 15, 30)),
        (60_000, (1, 2, 5, 10, 15, 30)),
        (3_600_000, (1, 2, 3, 6, 12)),
        (86_400_000, (1, 2, 7, 14, 28)),
    )
    for number in numbers
)
"""Bucket widths that people can read easily."""


@dataclass(slots=True, frozen=True)
class PartitionCoverage:
    """Events of one partition of the feed that the report covers."""

    partition: int
    first_seq: int
    last_seq: int
    events: int
    first_ms: int
    last_ms: int

    @property
    def is_complete(self) -> bool:
        """True if every event between the first and the last was counted exactly once."""
        return self.last_seq - self.first_seq + 1 == self.events


@dataclass(slots=True, frozen=True)
class DurationStatistics:
    """Distribution of durations, in ms.

    Attributes:
        count: number of durations.
        quantiles: values of QUANTILES; empty without durations.
        longest: the maximum, 0 without durations.
    """

    count: int
    quantiles: tuple[float, ...]
    longest: int

    def at(self, quantile: float) -> float | None:
        """Return one of QUANTILES; None without durations."""
        return self.quantiles[QUANTILES.index(quantile)] if self.quantiles else None


@dataclass(slots=True, frozen=True)
class TubeStatistics:
    """Statistics of one tube, or of all tubes.

    Attributes:
        name: name of the tube, or ALL_TUBES.
        counts: number of events by kind; kinds without events are absent.
        gone: number of tasks that left the tube.
        first_ms: time of the first event.
        last_ms: time of the last event.
        wait: durations from READY to TAKEN.
        run: durations from TAKEN to the end of the attempt.
        attempts_max: highest attempt number of a task.
    """

    name: str
    counts: Mapping[str, int]
    gone: int
    first_ms: int
    last_ms: int
    wait: DurationStatistics
    run: DurationStatistics
    attempts_max: int

    def count(self, kind: str) -> int:
        """Return the number of events of a kind."""
        return self.counts.get(kind, 0)

    @property
    def failures(self) -> int:
        """Number of attempts that ended without an acknowledgement."""
        return sum(self.count(kind) for kind in FAILURES)

    @property
    def acks_per_second(self) -> float | None:
        """Finished tasks per second between the first and last event; None for an empty span."""
        span_ms = self.last_ms - self.first_ms
        return self.count("ack") * 1_000 / span_ms if span_ms else None

    @property
    def takes_per_ack(self) -> float | None:
        """Number of takes per finished task: 1 without failures."""
        acks = self.count("ack")
        return self.count("take") / acks if acks else None


FAILURES: Final = (
    "release",
    "bury",
    "ttr_expired",
    "session_release",
    "startup_release",
    "release_all",
    "snatch",
)
"""Kinds of events that end an attempt without finishing the task."""


@dataclass(slots=True, frozen=True)
class TimelineBucket:
    """Counts of one tube in one time bucket.

    Attributes:
        at_ms: start of the bucket.
        tube: name of the tube.
        puts, takes, acks, failures: number of events.
        ready, taken: change of the number of tasks in that state.
    """

    at_ms: int
    tube: str
    puts: int
    takes: int
    acks: int
    failures: int
    ready: int
    taken: int


@dataclass(slots=True, frozen=True)
class FailureCount:
    """Number of attempts of a tube that ended with one kind of failure.

    Attributes:
        tube: the tube.
        kind: kind of the event that ended the attempts.
        reason: class of the failure.
        fingerprint: hash of the class and of the message without its ids and numbers.
        count: number of attempts.
        last_ms: time of the last event.
        message: message of one of the failures.
    """

    tube: str
    kind: str
    reason: str
    fingerprint: int
    count: int
    last_ms: int
    message: str


@dataclass(slots=True, frozen=True)
class AttemptCount:
    """Number of tasks of a tube that finished at the n-th attempt."""

    tube: str
    attempt: int
    tasks: int


@dataclass(slots=True, frozen=True)
class Report:
    """All numbers of a report.

    Attributes:
        source: name of the source, for people.
        is_filtered: True if only some tubes were read.
        is_exact: True if percentiles are exact; else they are within a ten-thousandth of rank.
        parts: coverage by partition, in order.
        total: statistics of all tubes together.
        tubes: statistics by tube, busiest first.
        bucket_ms: width of a time bucket.
        timeline: ordered by time and tube.
        failures: most frequent first.
        attempts: ordered by tube and attempt.
    """

    source: str
    is_filtered: bool
    is_exact: bool
    parts: Sequence[PartitionCoverage]
    total: TubeStatistics
    tubes: Sequence[TubeStatistics]
    bucket_ms: int
    timeline: Sequence[TimelineBucket]
    failures: Sequence[FailureCount]
    attempts: Sequence[AttemptCount]

    @property
    def events(self) -> int:
        """Number of events."""
        return sum(part.events for part in self.parts)

    @property
    def is_complete(self) -> bool:
        """True if every event of the range was counted exactly once."""
        return not self.is_filtered and all(part.is_complete for part in self.parts)

    @property
    def is_from_the_start(self) -> bool:
        """True if the range begins with the feed, so that backlogs are absolute."""
        return not self.is_filtered and all(part.first_seq == 0 for part in self.parts)


def bucket_width_ms(span_ms: int) -> int:
    """Return the smallest readable width that divides a span into at most BUCKETS_MAX."""
    for width in BUCKET_WIDTHS_MS:
        if span_ms < width * BUCKETS_MAX:
            return width
    widest = BUCKET_WIDTHS_MS[-1]
    return -(-span_ms // (BUCKETS_MAX * widest)) * widest
