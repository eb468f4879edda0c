"""Hold the numbers of a report as plain values, and say what can be derived from them.

Times are milliseconds. A task waits from when it became ready until it is taken, and runs from when
it is taken until it is acknowledged, released, buried, or its time to run is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALL_TUBES: Final = "all tubes"
QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Which percentiles are computed, in this order."""
BUCKETS_MAX: Final = 120
"""How many points in time a report has at most."""
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
"""Spans of time that people read easily."""


@dataclass(slots=True, frozen=True)
class PartitionCoverage:
    """What the report covers of one partition of the feed."""

    partition: int
    first_seq: int
    last_seq: int
    events: int
    first_ms: int
    last_ms: int

    @property
    def is_complete(self) -> bool:
        """Whether every event between the first and the last was counted exactly once."""
        return self.last_seq - self.first_seq + 1 == self.events


@dataclass(slots=True, frozen=True)
class DurationStatistics:
    """How durations are distributed, in milliseconds.

    Attributes:
        count: how many there are.
        quantiles: those of QUANTILES; empty if there are none.
        longest: the maximum, 0 if there are none.
    """

    count: int
    quantiles: tuple[float, ...]
    longest: int

    def at(self, quantile: float) -> float | None:
        """Return one of QUANTILES; None if there are no durations."""
        return self.quantiles[QUANTILES.index(quantile)] if self.quantiles else None


@dataclass(slots=True, frozen=True)
class TubeStatistics:
    """What happened in a tube, or in all of them.

    Attributes:
        name: of the tube, or ALL_TUBES.
        counts: by kind of event, how many; kinds that did not occur are absent.
        gone: how many tasks left the tube for good.
        first_ms: time of its first event.
        last_ms: time of its last event.
        wait: from ready to taken.
        run: from taken to the end of the attempt.
        attempts_max: the most attempts of a task.
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
        """Return how many events of a kind there were."""
        return self.counts.get(kind, 0)

    @property
    def failures(self) -> int:
        """How many attempts did not end with an acknowledgement."""
        return sum(self.count(kind) for kind in FAILURES)

    @property
    def acks_per_second(self) -> float | None:
        """Tasks finished per second of the time in which the tube had events; None if that is 0."""
        span_ms = self.last_ms - self.first_ms
        return self.count("ack") * 1_000 / span_ms if span_ms else None

    @property
    def takes_per_ack(self) -> float | None:
        """How often a task is taken for each that is finished: 1 without failures."""
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
    """What happened in a tube within one span of time.

    Attributes:
        at_ms: where the span begins.
        tube: name of the tube.
        puts, takes, acks, failures: how many of each.
        ready, taken: by how much the number of tasks in that state grew.
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
    """How often attempts ended in one way, without finishing their task."""

    tube: str
    kind: str
    reason: str
    count: int
    last_ms: int


@dataclass(slots=True, frozen=True)
class AttemptCount:
    """How many tasks of a tube were finished at their n-th attempt."""

    tube: str
    attempt: int
    tasks: int


@dataclass(slots=True, frozen=True)
class Report:
    """All numbers of a report.

    Attributes:
        source: what was read, for people.
        is_filtered: whether only some tubes were read.
        is_exact: whether percentiles are exact; otherwise within a ten-thousandth of rank.
        parts: by partition of the feed, in order.
        total: over all tubes.
        tubes: by number of events, most first.
        bucket_ms: the width of a moment.
        timeline: in order of time and tube.
        failures: most frequent first.
        attempts: by tube and attempt.
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
        """How many events were counted."""
        return sum(part.events for part in self.parts)

    @property
    def is_complete(self) -> bool:
        """Whether every event of the range is known to be counted exactly once."""
        return not self.is_filtered and all(part.is_complete for part in self.parts)

    @property
    def is_from_the_start(self) -> bool:
        """Whether the range begins with the feed, so that backlogs are absolute."""
        return not self.is_filtered and all(part.first_seq == 0 for part in self.parts)


def bucket_width_ms(span_ms: int) -> int:
    """Return the smallest readable width that divides a span into at most BUCKETS_MAX."""
    for width in BUCKET_WIDTHS_MS:
        if span_ms < width * BUCKETS_MAX:
            return width
    widest = BUCKET_WIDTHS_MS[-1]
    return -(-span_ms // (BUCKETS_MAX * widest)) * widest
