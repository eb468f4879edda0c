"""SQL of the views on problems: late tasks, stuck tasks, and workers unlike the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

GAP_SECONDS: Final = 600
"""An incident ends if no wait exceeds the target for longer than this."""
SILENT_MINUTES: Final = 5
"""Number of minutes without a take, above the usual number, from which workers count as stopped."""
CHANGE: Final = 1.5
"""Ratio to the usual value from which puts and runs are a cause."""
STUCK_RUNS: Final = 3
"""A TAKEN task is stuck after this many times the p99 of the runs of its tube."""
STUCK_RUN_MS_MIN: Final = 600_000
STUCK_WAITS: Final = 10
"""A READY task is stuck after this many times the target of waits."""
ATTEMPTS_MIN: Final = 20
"""Number of attempts on a date from which a worker is compared with the others."""
DEVIATIONS: Final = 4
"""Number of standard deviations above the failure rate of the others that mark an outlier."""
SLOW: Final = 2
"""Ratio to the mean run of the others that marks an outlier."""

INCIDENT_VIEWS: Final[Mapping[str, str]] = {
    "open_tasks": """
        SELECT tube, task_id, state, since_ts, session, takes, now_ts,
            unix_millis(now_ts) - unix_millis(since_ts) AS age_ms, wait_target_ms
        FROM (
            SELECT tube, task_id, max_by(last_state, last_since_ts) AS state,
                max(last_since_ts) AS since_ts, max_by(last_session, last_since_ts) AS session,
                sum(takes) AS takes
            FROM taskraft_task_days GROUP BY tube, task_id
        )
        JOIN (
            SELECT tube, max_by(wait_target_ms, date) AS wait_target_ms
            FROM taskraft_outcomes GROUP BY tube
        ) USING (tube)
        CROSS JOIN (SELECT max(last_ts) AS now_ts FROM taskraft_task_days)
        WHERE state IS NOT NULL
    """,
    "stuck_tasks": f"""
        SELECT tube, task_id, state, since_ts, age_ms, limit_ms, session, takes,
            concat('taskraft task show ', tube, ' ', task_id) AS command
        FROM (
            SELECT *, CASE state
                WHEN 'taken' THEN greatest({STUCK_RUNS} * coalesce(p99_ms, 0), {STUCK_RUN_MS_MIN})
                WHEN 'ready' THEN {STUCK_WAITS} * wait_target_ms END AS limit_ms
            FROM taskraft_open_tasks LEFT JOIN (
                SELECT tube,
                    kll_sketch_get_quantile_bigint(kll_merge_agg_bigint(sketch), 0.99D) AS p99_ms
                FROM taskraft_latencies WHERE phase = 'run' GROUP BY tube
            ) USING (tube)
        ) WHERE age_ms > limit_ms
    """,  # noqa: S608 - built from constants of this module
    "incidents": f"""
        WITH late AS (
            SELECT tube, minute, tasks, wait_max_ms, last_ts FROM taskraft_late_waits
            UNION ALL
            SELECT tube,
                timestamp_seconds((unix_millis(since_ts) + wait_target_ms) DIV 60000 * 60),
                1, age_ms, now_ts
            FROM taskraft_open_tasks WHERE state = 'ready' AND age_ms > wait_target_ms
        ), late_minutes AS (
            SELECT tube, minute, sum(tasks) AS tasks, max(wait_max_ms) AS wait_max_ms,
                max(last_ts) AS last_ts
            FROM late GROUP BY tube, minute
        ), begun AS (
            SELECT *, coalesce(unix_seconds(minute) - unix_seconds(
                lag(minute) OVER (PARTITION BY tube ORDER BY minute)) > {GAP_SECONDS}, true
            ) AS is_first
            FROM late_minutes
        ), numbered AS (
            SELECT *, count_if(is_first) OVER (PARTITION BY tube ORDER BY minute) AS number
            FROM begun
        ), found AS (
            SELECT tube, number, min(minute) AS since_ts, max(last_ts) AS until_ts,
                sum(tasks) AS tasks, max(wait_max_ms) AS wait_max_ms
            FROM numbered GROUP BY tube, number
        ), spans AS (
            SELECT found.*, (unix_seconds(until_ts) - unix_seconds(from_ts)) DIV 60 + 1 AS minutes
            FROM (
                SELECT found.*, timestamp_seconds(
                    (unix_millis(since_ts) - wait_target_ms) DIV 60000 * 60) AS from_ts
                FROM found JOIN (
                    SELECT tube, max_by(wait_target_ms, date) AS wait_target_ms
                    FROM taskraft_outcomes GROUP BY tube
                ) USING (tube)
            ) AS found
        ), inside AS (
            SELECT tube, number, sum(if(kind = 'put', events, 0)) AS puts,
                count(DISTINCT if(kind = 'take', minute, NULL)) AS taking
            FROM spans LEFT JOIN (
                SELECT tube AS of_tube, kind, minute, events FROM taskraft_throughput
            ) ON tube = of_tube AND minute BETWEEN from_ts AND until_ts
            GROUP BY tube, number
        ), usual AS (
            SELECT tube, sum(if(kind = 'put', events, 0)) AS all_puts,
                count(DISTINCT if(kind = 'take', minute, NULL)) AS all_taking,
                (unix_seconds(max(minute)) - unix_seconds(min(minute))) / 60 + 1 AS all_minutes
            FROM taskraft_throughput GROUP BY tube
        ), runs AS (
            SELECT tube, number, sum(sum_ms) / sum(durations) AS run_ms
            FROM spans JOIN (
                SELECT tube, since, durations, sum_ms FROM taskraft_latencies WHERE phase = 'run'
            ) USING (tube)
            WHERE since BETWEEN from_ts AND until_ts GROUP BY tube, number
        ), usual_runs AS (
            SELECT tube, sum(sum_ms) / sum(durations) AS usual_run_ms
            FROM taskraft_latencies WHERE phase = 'run' GROUP BY tube
        ), compared AS (
            SELECT *, greatest(all_minutes - minutes, 0) AS other_minutes,
                minutes - taking AS silent,
                greatest(all_minutes - minutes - (all_taking - taking), 0) AS other_silent
            FROM spans JOIN usual USING (tube) JOIN inside USING (tube, number)
                LEFT JOIN runs USING (tube, number) LEFT JOIN usual_runs USING (tube)
        )
        SELECT tube, since_ts, until_ts, tasks, wait_max_ms, CASE
            WHEN silent - minutes * coalesce(other_silent / nullif(other_minutes, 0), 0)
                >= {SILENT_MINUTES} THEN 'workers stopped'
            WHEN taking = 0 AND minutes >= {SILENT_MINUTES} THEN 'workers stopped'
            WHEN run_ms >= {CHANGE} * usual_run_ms THEN 'longer runs'
            WHEN puts / minutes
                >= {CHANGE} * (all_puts - puts) / nullif(other_minutes, 0) THEN 'more puts'
            ELSE 'too few workers' END AS cause
        FROM compared
    """,  # noqa: S608 - built from constants of this module
    "worker_outliers": f"""
        WITH by_session AS (
            SELECT date, tube, session, sum(attempts) AS attempts, sum(failures) AS failures,
                sum(busy_ms) AS busy_ms
            FROM taskraft_workers WHERE session IS NOT NULL GROUP BY date, tube, session
        ), beside AS (
            SELECT *, sum(attempts) OVER (tubes) - attempts AS other_attempts,
                sum(failures) OVER (tubes) - failures AS other_failures,
                sum(busy_ms) OVER (tubes) - busy_ms AS other_busy_ms
            FROM by_session WINDOW tubes AS (PARTITION BY date, tube)
        ), rates AS (
            SELECT *, failures / attempts AS failure_rate, busy_ms / attempts AS run_ms,
                (other_failures + 1) / (other_attempts + 2) AS other_failure_rate,
                other_busy_ms / nullif(other_attempts, 0) AS other_run_ms
            FROM beside
        ), scored AS (
            SELECT *, (failure_rate - other_failure_rate)
                / sqrt(other_failure_rate * (1 - other_failure_rate) / attempts) AS deviations
            FROM rates WHERE attempts >= {ATTEMPTS_MIN} AND other_attempts >= {ATTEMPTS_MIN}
        )
        SELECT date, tube, session, attempts, failure_rate, other_failure_rate, run_ms,
            other_run_ms, deviations,
            CASE WHEN deviations >= {DEVIATIONS} THEN 'failures' ELSE 'slow' END AS problem
        FROM scored WHERE deviations >= {DEVIATIONS} OR run_ms >= {SLOW} * other_run_ms
    """,  # noqa: S608 - built from constants of this module
}
"""SQL of each view; a view may use earlier views."""
