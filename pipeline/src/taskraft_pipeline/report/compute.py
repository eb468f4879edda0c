"""Compute a report with Spark SQL, with one shuffle per table and no Python code per row.

The events contain their durations, so neither a join nor state is needed. The driver gets a bounded
number of rows of each table: the busiest tubes have their own rows, and the others are counted as
one tube, OTHER_TUBES. The sums over all tubes are therefore exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from taskraft_pipeline.errors import PipelineError
from taskraft_pipeline.figures import CONDITIONS, CROSSING, FIGURES, RUN_END, WAIT_END
from taskraft_pipeline.report.report import (
    ALL_TUBES,
    ATTEMPTS_MAX,
    BUCKETS_MAX,
    OTHER_TUBES,
    QUANTILES,
    AttemptCount,
    DurationStatistics,
    FailureCount,
    PartitionCoverage,
    Report,
    TimelineBucket,
    TransitionCount,
    TubeStatistics,
    bucket_width_ms,
)
from taskraft_pipeline.spark_session import described

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row

COLUMNS: Final = (
    "feed_partition",
    "seq",
    "ts",
    "tube",
    "kind",
    "from_state",
    "to_state",
    "attempt",
    "since_ts",
    "reason",
    "message",
    "fingerprint",
    "outcome",
    "target",
    "attempt_failed",
)
"""Columns that the report needs."""

EXACT_EVENTS_MAX: Final = 5_000_000
"""Maximum number of events for exact percentiles, which keep each distinct duration in memory;
above it, percentiles are approximate."""
SKETCH_ACCURACY: Final = 10_000
TUBES_MAX: Final = 1_000
"""Maximum number of tubes with their own rows; the busiest tubes have them."""
FAILURES_MAX: Final = 1_000
"""Maximum number of different failures in a report; the most frequent failures are listed."""
PARTS_MAX: Final = 1_024
"""Maximum number of partitions of a feed (TASKRAFT_FEED_PARTITIONS)."""
TRANSITIONS_MAX: Final = 128
"""Maximum number of transitions of one tube: between eight states, crossing or not."""


class NothingToReport(PipelineError):
    """The feed or the journal contains no event."""


class TooManyRows(PipelineError):
    """A table of the report has more rows than a correct feed or journal can have."""


def compute(changes: DataFrame, source: str, *, is_filtered: bool = False) -> Report:
    """Return the report over changes that have at least COLUMNS.

    Args:
        changes: the events.
        source: name of the source, for people.
        is_filtered: True if only some tubes were read, so that sequence numbers have gaps.

    Raises:
        NothingToReport: there are no events.
        TooManyRows: the events have more partitions or states than a feed can have.
    """
    with described(changes.sparkSession, f"taskraft report: reads {source}"):
        return compute_tables(with_durations(changes), source, is_filtered=is_filtered)


def compute_tables(facts: DataFrame, source: str, *, is_filtered: bool) -> Report:
    """Return the report over the facts of `with_durations`; errors as for `compute`."""
    parts = compute_parts(facts)
    if not parts:
        raise NothingToReport(f"{source}: no events")
    is_exact = sum(part.events for part in parts) <= EXACT_EVENTS_MAX
    span_ms = max(part.last_ms for part in parts) - min(part.first_ms for part in parts)
    bucket_ms = bucket_width_ms(span_ms)
    total, *tubes = compute_tubes(facts, is_exact=is_exact)
    tube_count = len(tubes)
    if tube_count > TUBES_MAX:
        tube_count = facts.select("tube").distinct().count()
        facts = fold_tubes(facts, [tube.name for tube in tubes[:TUBES_MAX]])
        total, *tubes = compute_tubes(facts, is_exact=is_exact)
    return Report(
        source=source,
        is_filtered=is_filtered,
        is_exact=is_exact,
        parts=parts,
        total=total,
        tube_count=tube_count,
        tubes=tubes,
        bucket_ms=bucket_ms,
        transitions=compute_transitions(facts),
        timeline=compute_timeline(facts, bucket_ms),
        failures=compute_failures(facts),
        attempts=compute_attempts(facts),
    )


def with_durations(changes: DataFrame) -> DataFrame:
    """Return the changes with times in ms, a column for each figure, and the wait or run."""
    spent = "unix_millis(ts) - unix_millis(since_ts)"
    return changes.selectExpr(
        "feed_partition",
        "seq",
        "unix_millis(ts) AS at_ms",
        "tube",
        "kind",
        "from_state",
        "to_state",
        "attempt",
        "reason",
        "message",
        "fingerprint",
        f"CASE WHEN {WAIT_END} THEN {spent} END AS wait_ms",
        f"CASE WHEN {RUN_END} THEN {spent} END AS run_ms",
        f"{CROSSING} AS is_crossing",
        *(f"{condition} AS {column_of(name)}" for name, condition in CONDITIONS.items()),
    )


def fold_tubes(facts: DataFrame, kept: Sequence[str]) -> DataFrame:
    """Return the facts with OTHER_TUBES in place of each tube that is not kept."""
    tube = F.col("tube")
    return facts.withColumn("tube", F.when(tube.isin(*kept), tube).otherwise(OTHER_TUBES))


def fetch(rows: DataFrame, rows_max: int) -> list[Row]:
    """Return the rows of a query that has at most ``rows_max`` rows.

    Raises:
        TooManyRows: the query has more rows. The driver gets one row more than the maximum.
    """
    found = rows.limit(rows_max + 1).collect()
    if len(found) > rows_max:
        raise TooManyRows(
            f"the report has more than {rows_max:,} rows with the columns {', '.join(rows.columns)}"
        )
    return found


def column_of(figure: str) -> str:
    """Return the column that tells whether an event counts for a figure."""
    return f"is_{figure}"


def compute_parts(facts: DataFrame) -> list[PartitionCoverage]:
    """Return the covered range of each partition of the feed."""
    rows = facts.sparkSession.sql(
        """
        SELECT feed_partition, min(seq), max(seq), count(*), min(at_ms), max(at_ms)
        FROM {facts} GROUP BY feed_partition ORDER BY feed_partition
        """,
        facts=facts,
    )
    return [PartitionCoverage(*row) for row in fetch(rows, PARTS_MAX)]


def compute_tubes(facts: DataFrame, *, is_exact: bool) -> list[TubeStatistics]:
    """Return the statistics of all tubes together, then of each tube, busiest first.

    The result has at most TUBES_MAX + 1 tubes. OTHER_TUBES is the last.
    """
    counts = ", ".join(f"count_if({column_of(one.name)}) AS {one.name}" for one in FIGURES)
    rows = facts.sparkSession.sql(
        f"""
        SELECT tube, grouping(tube) AS is_total, min(at_ms) AS first_ms, max(at_ms) AS last_ms,
               {counts}, max(attempt) AS attempts_max,
               count(wait_ms) AS waits, max(wait_ms) AS longest_wait_ms,
               count(run_ms) AS runs, max(run_ms) AS longest_run_ms,
               {quantiles("wait_ms", is_exact=is_exact)} AS wait,
               {quantiles("run_ms", is_exact=is_exact)} AS run
        FROM {{facts}} GROUP BY ROLLUP (tube)
        ORDER BY is_total DESC, tube <=> {{others}}, count(*) DESC, tube LIMIT {{most}}
        """,  # noqa: S608 - built from constants of this module
        facts=facts,
        others=OTHER_TUBES,
        most=TUBES_MAX + 2,
    )
    return [tube_of(row) for row in rows.collect()]


def tube_of(row: Row) -> TubeStatistics:
    """Convert a row of the statistics query to a value."""
    return TubeStatistics(
        name=ALL_TUBES if row.is_total else row.tube,
        counts={one.name: row[one.name] for one in FIGURES if row[one.name]},
        first_ms=row.first_ms,
        last_ms=row.last_ms,
        wait=DurationStatistics(row.waits, tuple(row.wait or ()), row.longest_wait_ms or 0),
        run=DurationStatistics(row.runs, tuple(row.run or ()), row.longest_run_ms or 0),
        attempts_max=row.attempts_max,
    )


def compute_transitions(facts: DataFrame) -> list[TransitionCount]:
    """Return the number of transitions by tube, states, and whether another tube is involved."""
    rows = facts.sparkSession.sql(
        """
        SELECT tube, coalesce(from_state, '') AS before, coalesce(to_state, '') AS after,
            is_crossing, count(*)
        FROM {facts} GROUP BY tube, before, after, is_crossing
        ORDER BY tube, before, after, is_crossing
        """,
        facts=facts,
    )
    return [TransitionCount(*row) for row in fetch(rows, (TUBES_MAX + 1) * TRANSITIONS_MAX)]


def compute_timeline(facts: DataFrame, bucket_ms: int) -> list[TimelineBucket]:
    """Return the counts per tube and time bucket of ``bucket_ms``."""
    rows = facts.sparkSession.sql(
        """
        SELECT at_ms DIV {bucket_ms} * {bucket_ms} AS bucket, tube,
               count_if(is_put), count_if(is_taken), count_if(is_acknowledged),
               count_if(is_failed),
               count_if(to_state <=> 'ready') - count_if(from_state <=> 'ready'),
               count_if(to_state <=> 'taken') - count_if(from_state <=> 'taken')
        FROM {facts} GROUP BY bucket, tube ORDER BY bucket, tube
        """,
        facts=facts,
        bucket_ms=bucket_ms,
    )
    # The first and the last bucket may both be partial, so the events can touch one bucket more.
    return [TimelineBucket(*row) for row in fetch(rows, (TUBES_MAX + 1) * (BUCKETS_MAX + 1))]


def compute_failures(facts: DataFrame) -> list[FailureCount]:
    """Return the most frequent failures, by tube, kind, reason and fingerprint."""
    rows = facts.sparkSession.sql(
        """
        SELECT tube, kind, coalesce(reason, '') AS reason, coalesce(fingerprint, 0) AS fingerprint,
            count(*) AS failures, max(at_ms), coalesce(min(message), '') AS message
        FROM {facts} WHERE is_failures GROUP BY tube, kind, reason, fingerprint
        ORDER BY failures DESC, tube, kind, reason, fingerprint LIMIT {most}
        """,
        facts=facts,
        most=FAILURES_MAX,
    )
    return [FailureCount(*row) for row in rows.collect()]


def compute_attempts(facts: DataFrame) -> list[AttemptCount]:
    """Return the number of acknowledged tasks by tube and attempt, up to ATTEMPTS_MAX."""
    rows = facts.sparkSession.sql(
        """
        SELECT tube, least(attempt, {most}) AS number, count(*) FROM {facts} WHERE is_acknowledged
        GROUP BY tube, number ORDER BY tube, number
        """,
        facts=facts,
        most=ATTEMPTS_MAX,
    )
    return [AttemptCount(*row) for row in fetch(rows, (TUBES_MAX + 1) * (ATTEMPTS_MAX + 1))]


def quantiles(column: str, *, is_exact: bool) -> str:
    """Return the SQL expression for the QUANTILES of a column."""
    wanted = f"array({', '.join(f'{quantile}D' for quantile in QUANTILES)})"
    if is_exact:
        return f"percentile({column}, {wanted})"
    return f"CAST(percentile_approx({column}, {wanted}, {SKETCH_ACCURACY}) AS ARRAY<DOUBLE>)"
