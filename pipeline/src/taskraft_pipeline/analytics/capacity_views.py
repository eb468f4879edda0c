"""SQL of the views on capacity and cost, and the SQL function that they use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from taskraft_pipeline.analytics.capacity import CapacityLoad

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKERS_FUNCTION: Final = "taskraft_workers_for"
"""Name of the SQL function for `workers_for`."""
NOISE: Final = 1e-9
"""A smaller squared coefficient of variation is the error of the floating-point numbers."""

CAPACITY_VIEWS: Final[Mapping[str, str]] = {
    "hourly_loads": f"""
        WITH puts AS (
            SELECT date, tube, date_trunc('hour', minute) AS hour, sum(events) AS puts,
                sum(events * events) AS square_puts
            FROM taskraft_throughput WHERE kind = 'put'
            GROUP BY date, tube, date_trunc('hour', minute)
        ), attempts AS (
            SELECT date, tube, sum(taken) / nullif(sum(put), 0) AS takes_per_put
            FROM taskraft_outcomes GROUP BY date, tube
        ), runs AS (
            SELECT date, tube, sum(sum_ms) / sum(durations) AS run_ms,
                sum(sum_squares) / sum(durations) AS square_run_ms
            FROM taskraft_latencies WHERE phase = 'run' GROUP BY date, tube
        ), seen AS (
            SELECT date, tube, hour, count(DISTINCT session) AS workers_seen,
                sum(busy_ms) / 3600000 AS busy_workers
            FROM taskraft_workers GROUP BY date, tube, hour
        )
        SELECT date, tube, hour, puts, puts * takes_per_put / 3600 AS arrivals_per_s, run_ms,
            (square_puts / 60 - puts / 60 * puts / 60) / (puts / 60) AS arrival_variation,
            if(square_run_ms / (run_ms * run_ms) - 1 < {NOISE}, 0D,
                square_run_ms / (run_ms * run_ms) - 1) AS run_variation,
            puts * takes_per_put / 3600 * run_ms / 1000 AS offered,
            coalesce(workers_seen, 0) AS workers_seen, coalesce(busy_workers, 0) AS busy_workers,
            wait_target_ms
        FROM puts JOIN attempts USING (date, tube) JOIN runs USING (date, tube)
            LEFT JOIN seen USING (date, tube, hour)
            JOIN (
                SELECT tube, max_by(wait_target_ms, date) AS wait_target_ms
                FROM taskraft_outcomes GROUP BY tube
            ) USING (tube)
        WHERE run_ms > 0 AND takes_per_put > 0
    """,  # noqa: S608 - built from constants of this module
    "capacity": f"""
        SELECT *, {WORKERS_FUNCTION}(arrivals_per_s, run_ms / 1000, wait_target_ms / 1000,
            arrival_variation, run_variation) AS workers_needed
        FROM taskraft_hourly_loads
    """,  # noqa: S608 - built from constants of this module
    "costs": """
        SELECT date, tube, put, acknowledged, put_bytes, busy_ms / 3600000 AS worker_hours,
            failed_ms / 3600000 AS failed_hours,
            busy_ms / sum(busy_ms) OVER (PARTITION BY date) AS share,
            busy_ms / nullif(acknowledged, 0) AS run_ms_per_ack
        FROM (
            SELECT date, tube, sum(put) AS put, sum(acknowledged) AS acknowledged,
                sum(put_bytes) AS put_bytes
            FROM taskraft_outcomes GROUP BY date, tube
        ) JOIN (
            SELECT date, tube, sum(busy_ms) AS busy_ms, sum(failed_ms) AS failed_ms
            FROM taskraft_workers GROUP BY date, tube
        ) USING (date, tube)
    """,
}  # fmt: skip
"""SQL of each view; a view may use earlier views."""


def workers_for(
    arrivals_per_s: float,
    run_s: float,
    wait_s: float,
    arrival_variation: float = 1.0,
    run_variation: float = 1.0,
) -> int | None:
    """Return the number of workers for a mean wait; None if no number of workers is known.

    The arguments are those of `CapacityLoad` and `CapacityLoad.workers_for`.
    """
    load = CapacityLoad(arrivals_per_s, run_s, arrival_variation, run_variation)
    try:
        return load.workers_for(wait_s)
    except ValueError:
        return None
