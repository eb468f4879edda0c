"""Register the tables of an analysis, and views on them, for SQL in one Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from taskraft_pipeline.analytics.capacity_views import (
    CAPACITY_VIEWS,
    WORKERS_FUNCTION,
    workers_for,
)
from taskraft_pipeline.analytics.column_comments import commented
from taskraft_pipeline.analytics.incident_views import INCIDENT_VIEWS
from taskraft_pipeline.analytics.tables import TABLES
from taskraft_pipeline.journal.journal import spark_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

PREFIX: Final = "taskraft_"
"""Beginning of the names of all views."""

BASE_VIEWS: Final[Mapping[str, str]] = {
    "lifecycles": """
        SELECT tube, task_id, min(put_ts) AS put_ts, min(first_take_ts) AS first_take_ts,
            max(end_ts) AS end_ts, max_by(end_kind, end_ts) AS end_kind, sum(takes) AS takes,
            sum(wait_ms) AS wait_ms, sum(run_ms) AS run_ms, sum(delay_ms) AS delay_ms,
            unix_millis(max(end_ts)) - unix_millis(min(put_ts)) AS total_ms
        FROM taskraft_task_days GROUP BY tube, task_id
    """,
    "percentiles": """
        SELECT date, tube, phase, durations, sum_ms / durations AS mean_ms, max_ms,
            kll_sketch_get_quantile_bigint(sketch, 0.5D) AS p50_ms,
            kll_sketch_get_quantile_bigint(sketch, 0.95D) AS p95_ms,
            kll_sketch_get_quantile_bigint(sketch, 0.99D) AS p99_ms
        FROM (
            SELECT date, tube, phase, sum(durations) AS durations, sum(sum_ms) AS sum_ms,
                max(max_ms) AS max_ms, kll_merge_agg_bigint(sketch) AS sketch
            FROM taskraft_latencies GROUP BY date, tube, phase
        )
    """,
    "depth": """
        SELECT tube, state, minute,
            sum(change) OVER (PARTITION BY tube, state ORDER BY minute) AS tasks
        FROM taskraft_depth_changes
    """,
    "fairness": """
        SELECT date, tube, hour, count(*) AS subqueues, sum(takes) AS takes,
            sum(takes) * sum(takes) / (count(*) * sum(takes * takes)) AS jain_index,
            max(takes) / sum(takes) AS top_share, max(wait_max_ms) AS wait_max_ms
        FROM taskraft_subqueues GROUP BY date, tube, hour
    """,
    "new_failures": """
        SELECT * FROM (
            SELECT *, min(date) OVER (PARTITION BY tube, reason, fingerprint) AS first_date
            FROM taskraft_failures
        ) WHERE date = first_date
    """,
    "worker_rates": """
        SELECT *, busy_ms / 3600000 AS utilisation, failures / attempts AS failure_rate,
            sum(failures) OVER (PARTITION BY date, tube)
                / sum(attempts) OVER (PARTITION BY date, tube) AS tube_failure_rate
        FROM taskraft_workers
    """,
}
"""SQL of the views on single tables."""
VIEWS: Final[Mapping[str, str]] = {**BASE_VIEWS, **INCIDENT_VIEWS, **CAPACITY_VIEWS}
"""SQL of each view; a view may use earlier views."""


def register_views(spark: SparkSession, folder: Path) -> list[str]:
    """Create a temporary view for each table and each of VIEWS; return their names.

    All columns have comments. The SQL function WORKERS_FUNCTION computes a number of workers; it
    runs in Python, so the executors need this distribution.

    Args:
        spark: session in which the views exist until it ends.
        folder: folder of the tables of an analysis.
    """
    for name in TABLES:
        rows = spark.read.parquet(spark_path(folder.absolute() / name))
        commented(rows).createOrReplaceTempView(PREFIX + name)
    spark.udf.register(WORKERS_FUNCTION, workers_for, "int")
    for name, query in VIEWS.items():
        commented(spark.sql(query)).createOrReplaceTempView(PREFIX + name)
    return [PREFIX + name for name in (*TABLES, *VIEWS)]
