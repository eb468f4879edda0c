"""The numbers of a report as plain values.

Times are in ms. A task waits from the time it becomes READY until it is taken. It runs from the
take until it leaves TAKEN, for whatever reason. The counts are the figures of
`taskraft_pipeline.figures`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALL_TUBES: Final = "all tubes"
OTHER_TUBES: Final = "other tubes"
"""Name under which a report counts the tubes that have no line of their own. The name of a real
tube has no space."""
ATTEMPTS_MAX: Final = 20
"""Greatest attempt number with a count of its own; the count includes all later attempts."""
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
        counts: number of events by name of the figure; figures without events are absent.
        first_ms: time of the first event.
        last_ms: time of the last event.
        wait: durations from READY to TAKEN.
        run: durations from TAKEN to the end of the attempt.
        attempts_max: highest attempt number of a task.
    """

    name: str
    counts: Mapping[str, int]
    first_ms: int
    last_ms: int
    wait: DurationStatistics
    run: DurationStatistics
    attempts_max: int

    def count(self, figure: str) -> int:
        """Return the number of events that a figure counts."""
        return self.counts.get(figure, 0)

    @property
    def acks_per_second(self) -> float | None:
        """Acknowledged tasks per second, from the first to the last event; None for no span."""
        span_ms = self.last_ms - self.first_ms
        return self.count("acknowledged") * 1_000 / span_ms if span_ms else None

    @property
    def takes_per_ack(self) -> float | None:
        """Number of takes per acknowledged task: 1 without failures."""
        acks = self.count("acknowledged")
        return self.count("taken") / acks if acks else None


@dataclass(slots=True, frozen=True)
class TransitionCount:
    """Number of transitions of tasks of a tube from one state to another.

    Attributes:
        tube: the tube.
        from_state: state before; empty: the task did not exist.
        to_state: state after; empty: the task no longer exists.
        is_crossing: True if the empty state stands for another tube.
        count: number of transitions; events that do not change the state count too.
    """

    tube: str
    from_state: str
    to_state: str
    is_crossing: bool
    count: int


@dataclass(slots=True, frozen=True)
class TimelineBucket:
    """Counts of one tube in one time bucket.

    Attributes:
        at_ms: start of the bucket.
        tube: name of the tube.
        puts, takes, acks, failures: the figures put, taken, acknowledged and failed.
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
    """Number of attempts and burials of a tube with one kind of failure.

    Attributes:
        tube: the tube.
        kind: kind of the event that ended the attempts, or buried the tasks.
        reason: class of the failure.
        fingerprint: hash of the class and of the message without its ids and numbers.
        count: number of events.
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
    """Number of tasks of a tube that were acknowledged at the n-th attempt.

    ATTEMPTS_MAX stands for this attempt and for all later attempts.
    """

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
        tube_count: number of tubes, also of those that OTHER_TUBES contains.
        tubes: statistics by tube, busiest first, and OTHER_TUBES as the last if there are too many.
        bucket_ms: width of a time bucket.
        transitions: ordered by tube and states.
        timeline: ordered by time and tube.
        failures: most frequent first; ``total`` also counts rarer failures that are left out.
        attempts: ordered by tube and attempt.
    """

    source: str
    is_filtered: bool
    is_exact: bool
    parts: Sequence[PartitionCoverage]
    total: TubeStatistics
    tube_count: int
    tubes: Sequence[TubeStatistics]
    bucket_ms: int
    transitions: Sequence[TransitionCount]
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

    def tasks(self) -> Mapping[str, Mapping[str, int]]:
        """Return the change of the number of tasks, by tube and by state.

        If `is_from_the_start`, the change is the number of tasks at the end of the report. The
        empty state stands for tasks that do not exist.
        """
        found: dict[str, Counter[str]] = {tube.name: Counter() for tube in self.tubes}
        for one in self.transitions:
            found[one.tube][one.to_state] += one.count
            found[one.tube][one.from_state] -= one.count
        return found


def bucket_width_ms(span_ms: int) -> int:
    """Return the smallest readable width that divides a span into at most BUCKETS_MAX."""
    for width in BUCKET_WIDTHS_MS:
        if span_ms < width * BUCKETS_MAX:
            return width
    widest = BUCKET_WIDTHS_MS[-1]
    return -(-span_ms // (BUCKETS_MAX * widest)) * widest
