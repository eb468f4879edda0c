"""Compute the tables of one or several dates from their events.

Each row depends on events of one date only, so dates are computed one by one, in any order, and
again when a date gets more events. What spans dates, such as the life of a task, is merged by the
views. All expressions are Spark's own, without Python code per row. Times are in ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from taskraft_pipeline.figures import CONDITIONS, RUN_END, WAIT_END
from taskraft_pipeline.figures import EVENT_COLUMNS as FIGURE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame

LATENCY_SECONDS: Final = 300
"""Width of the buckets of ``latencies`` in seconds."""


def _spent() -> Column:
    """Return the time in ms that the task was in ``from_state``."""
    return F.greatest(F.unix_millis("ts") - F.unix_millis("since_ts"), F.lit(0))


def _has_left() -> Column:
    """Return whether the event ends a stay in a state."""
    return F.col("from_state").isNotNull() & ~F.col("from_state").eqNullSafe(F.col("to_state"))


def _bucket(seconds: int) -> Column:
    """Return the start of the bucket of an event."""
    return F.timestamp_seconds(F.floor(F.unix_seconds("ts") / seconds) * seconds)


def _time_in(state: str) -> Column:
    return F.coalesce(
        F.sum(F.when(_has_left() & (F.col("from_state") == state), _spent())), F.lit(0)
    )


def task_days(events: DataFrame) -> DataFrame:
    """Return the life cycle of each task on a date: put, takes, times in states, and end.

    ``last_state``, ``last_since_ts`` and ``last_session`` describe the last change of state on the
    date; without a change of state, ``last_since_ts`` is null.
    """
    change_seq = F.when(~F.col("from_state").eqNullSafe(F.col("to_state")), F.col("seq"))
    end_seq = F.when(F.col("to_state").isNull(), F.col("seq"))
    return events.groupBy("date", "tube", "task_id").agg(
        F.min(F.when(F.col("kind") == "put", F.col("ts"))).alias("put_ts"),
        F.min(F.when(F.col("kind") == "take", F.col("ts"))).alias("first_take_ts"),
        F.count_if(F.col("kind") == "take").alias("takes"),
        _time_in("ready").alias("wait_ms"),
        _time_in("taken").alias("run_ms"),
        _time_in("delayed").alias("delay_ms"),
        F.max_by("ts", end_seq).alias("end_ts"),
        F.max_by("kind", end_seq).alias("end_kind"),
        F.max_by("to_state", change_seq).alias("last_state"),
        F.max_by("ts", change_seq).alias("last_since_ts"),
        F.max_by("session", change_seq).alias("last_session"),
        F.max("ts").alias("last_ts"),
    )


def throughput(events: DataFrame) -> DataFrame:
    """Return the number of events by tube, kind and minute."""
    keys = ("date", "tube", "kind")
    return events.groupBy(*keys, _bucket(60).alias("minute")).agg(F.count("*").alias("events"))


def latencies(events: DataFrame) -> DataFrame:
    """Return the waits (READY until taken) and runs (TAKEN until left) by tube and 5 minutes.

    ``sketch`` is a KLL sketch of the durations; sketches of several rows can be merged.
    """
    phase = F.when(F.expr(WAIT_END), F.lit("wait")).when(F.expr(RUN_END), F.lit("run"))
    stays = events.where(_has_left()).select(
        "date", "tube", phase.alias("phase"), _bucket(LATENCY_SECONDS).alias("since"),
        _spent().alias("ms"),
    )  # fmt: skip
    return (
        stays.where("phase IS NOT NULL")
        .groupBy("date", "tube", "phase", "since")
        .agg(
            F.count("*").alias("durations"),
            F.sum("ms").alias("sum_ms"),
            F.sum(F.col("ms").cast("double") * F.col("ms")).alias("sum_squares"),
            F.max("ms").alias("max_ms"),
            F.expr("kll_sketch_agg_bigint(ms)").alias("sketch"),
        )
    )


def outcomes(events: DataFrame) -> DataFrame:
    """Return the figures by tube and hour, each in a column of its own.

    ``put_bytes`` is the size of the payloads of puts.
    """
    counts = [F.expr(f"count_if({one})").alias(name) for name, one in CONDITIONS.items()]
    return events.groupBy("date", "tube", _bucket(3_600).alias("hour")).agg(
        *counts,
        F.sum(F.when(F.expr(CONDITIONS["put"]), F.col("payload_bytes")).otherwise(0)).alias(
            "put_bytes"
        ),
        F.max("wait_target_ms").alias("wait_target_ms"),
    )


def late_waits(events: DataFrame) -> DataFrame:
    """Return the takes whose wait was longer than the target of the tube.

    ``minute`` is the time at which the wait exceeded the target.
    """
    late_ms = F.unix_millis("since_ts") + F.col("wait_target_ms")
    minute = F.timestamp_seconds(F.floor(late_ms / 60_000) * 60)
    late = events.where(WAIT_END)
    return (
        late.where(_spent() > F.col("wait_target_ms"))
        .groupBy("date", "tube", minute.alias("minute"))
        .agg(
            F.count("*").alias("tasks"),
            F.max(_spent()).alias("wait_max_ms"),
            F.max("ts").alias("last_ts"),
        )
    )


def failures(events: DataFrame) -> DataFrame:
    """Return the failures by tube, kind, reason and fingerprint."""
    keys = ("date", "tube", "kind", "reason", "fingerprint")
    return (
        events.where(CONDITIONS["failures"])
        .groupBy(*keys)
        .agg(
            F.count("*").alias("attempts"),
            F.min("ts").alias("first_ts"),
            F.max("ts").alias("last_ts"),
            F.max("message").alias("message"),
        )
    )


def subqueues(events: DataFrame) -> DataFrame:
    """Return the takes and waits by tube, hour and sub-queue."""
    keys = ("date", "tube", _bucket(3_600).alias("hour"), "subqueue")
    return (
        events.where("kind = 'take' AND subqueue IS NOT NULL")
        .groupBy(*keys)
        .agg(
            F.count("*").alias("takes"),
            F.sum(_spent()).alias("wait_ms"),
            F.max(_spent()).alias("wait_max_ms"),
        )
    )


def workers(events: DataFrame) -> DataFrame:
    """Return the ended attempts by tube, hour and session of the consumer."""
    keys = ("date", "tube", _bucket(3_600).alias("hour"), "session")
    failed = F.expr(CONDITIONS["failures"])
    return (
        events.where(RUN_END)
        .groupBy(*keys)
        .agg(
            F.count("*").alias("attempts"),
            F.sum(_spent()).alias("busy_ms"),
            F.sum(F.when(failed, _spent()).otherwise(0)).alias("failed_ms"),
            F.count_if(failed).alias("failures"),
            F.count_if(F.col("kind") == "ttr_expired").alias("ttr_expired"),
        )
    )


def depth_changes(events: DataFrame) -> DataFrame:
    """Return by how much the number of tasks in each state changed, by tube and minute."""
    moves = F.array(
        F.struct(F.col("to_state").alias("state"), F.lit(1).alias("change")),
        F.struct(F.col("from_state").alias("state"), F.lit(-1).alias("change")),
    )
    moved = events.where(~F.col("from_state").eqNullSafe(F.col("to_state")))
    return (
        moved.select("date", "tube", _bucket(60).alias("minute"), F.inline(moves))
        .where("state IS NOT NULL")
        .groupBy("date", "tube", "state", "minute")
        .agg(F.sum("change").alias("change"))
    )


TABLES: Final[Mapping[str, Callable[[DataFrame], DataFrame]]] = {
    "task_days": task_days,
    "throughput": throughput,
    "latencies": latencies,
    "outcomes": outcomes,
    "late_waits": late_waits,
    "failures": failures,
    "subqueues": subqueues,
    "workers": workers,
    "depth_changes": depth_changes,
}
"""The function that computes each table."""
EVENT_COLUMNS: Final = (
    "date", "seq", "ts", "since_ts", "tube", "task_id", "subqueue", "session", "reason",
    "message", "payload_bytes", *FIGURE_COLUMNS,
)  # fmt: skip
"""Columns of the events that the tables need; `wait_target_ms` is added to them."""
