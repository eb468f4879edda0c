"""The comments of the columns of all tables and views; equal names have equal meanings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from taskraft_pipeline.figures import FIGURES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

COMMENTS: Final[Mapping[str, str]] = {
    **{figure.name: figure.meaning for figure in FIGURES},
    "age_ms": "time since the task entered its state",
    "arrival_variation": "variance of the puts per minute divided by their mean; 1: random",
    "arrivals_per_s": "attempts that are wanted per second: puts times takes per put",
    "attempts": "number of ended attempts",
    "busy_ms": "time in attempts that ended in the hour",
    "busy_workers": "mean number of busy workers",
    "cause": "most likely cause: workers stopped, longer runs, more puts, or too few workers",
    "change": "tasks that entered the state minus tasks that left it",
    "command": "command that shows the task",
    "date": "date of the events, in UTC",
    "delay_ms": "time in the state DELAYED",
    "deviations": "standard deviations between the failure rate and the rate of the others",
    "durations": "number of durations",
    "end_kind": "kind of the event that removed the task; null: the task exists",
    "end_ts": "time at which the task was removed; null: the task exists",
    "events": "number of events",
    "failed_hours": "worker hours of attempts that ended with a failure",
    "failed_ms": "time in attempts that ended with a failure",
    "failure_rate": "failures divided by attempts",
    "fingerprint": "hash of the reason and of the message without numbers",
    "first_date": "first date of the failure in the journal",
    "first_take_ts": "time of the first take",
    "first_ts": "time of the first event",
    "hour": "begin of the hour",
    "jain_index": "fairness among sub-queues: 1 if all have equal takes, 1/n if one has all",
    "kind": "kind of the events",
    "last_session": "session of the last change of state",
    "last_since_ts": "time of the last change of state on the date",
    "last_state": "state after the last change of state; null: none, or the task was removed",
    "last_ts": "time of the last event",
    "limit_ms": "age from which the task counts as stuck",
    "max_ms": "longest duration",
    "mean_ms": "mean duration",
    "message": "example of the text of the failure",
    "minute": "begin of the minute",
    "now_ts": "time of the last event of all tubes",
    "offered": "offered load in Erlang: mean number of busy workers that the puts need",
    "other_failure_rate": "failure rate of the other workers of the tube, smoothed",
    "other_run_ms": "mean run on the other workers of the tube",
    "p50_ms": "median",
    "p95_ms": "95 % of the durations are shorter",
    "p99_ms": "99 % of the durations are shorter",
    "phase": "wait: READY until taken; run: TAKEN until left",
    "problem": "failures, or slow: the mean run is at least twice that of the others",
    "put_bytes": "bytes of the payloads of puts",
    "put_ts": "time of the put",
    "puts": "number of puts",
    "reason": "class of the failure",
    "run_ms": "time in the state TAKEN; in rates of workers and loads: mean time of an attempt",
    "run_ms_per_ack": "time of workers for each acknowledged task, with failed attempts",
    "run_variation": "squared coefficient of variation of the runs; 1: exponential",
    "session": "session of the consumer",
    "share": "part of the worker hours of all tubes on the date",
    "since": "begin of the 5 minutes",
    "since_ts": "begin: of the state, or of the first wait beyond the target",
    "sketch": "KLL sketch of the durations in ms",
    "state": "state of the tasks",
    "subqueue": "name of the sub-queue",
    "subqueues": "number of sub-queues with takes",
    "sum_ms": "sum of the durations",
    "sum_squares": "sum of the squared durations in ms",
    "takes": "number of takes",
    "task_id": "number of the task in its tube",
    "tasks": "number of tasks",
    "top_share": "part of the takes that the largest sub-queue has",
    "total_ms": "time from the put until the task was removed",
    "ttr_expired": "number of attempts whose TTR ended",
    "tube": "name of the tube",
    "tube_failure_rate": "failure rate of all workers of the tube on the date",
    "until_ts": "time of the last take beyond the target, or of the last event",
    "utilisation": "busy time divided by one hour",
    "wait_max_ms": "longest wait",
    "wait_ms": "time in the state READY",
    "wait_target_ms": "longest intended wait of the tube",
    "worker_hours": "hours of workers in attempts that ended on the date",
    "workers_needed": "number of workers for a mean wait within the target; null: above 100 000",
    "workers_seen": "number of sessions that ended an attempt in the hour",
}  # fmt: skip


def commented(rows: DataFrame) -> DataFrame:
    """Return rows whose columns have their comments, which DESCRIBE prints."""
    return rows.select(
        *(F.col(name).alias(name, metadata={"comment": COMMENTS[name]}) for name in rows.columns)
    )
