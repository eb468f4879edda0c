"""Compare the tasks of a snapshot with the tasks that the events of the feed lead to.

A snapshot and all later events give every later state. The functions use the column ``revision``:
the log index of an event, and the log index of a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = ("tube", "task_id")
VALUES: Final = ("priority", "created_ts")
STATE: Final = ("state", *VALUES)
"""Columns of a task that its last event determines.

The attempt is not among them, because a release can take back the attempt that its event counts.
"""
CHANGE_COLUMNS: Final = (*KEY, "seq", "revision", "to_state", *VALUES)
"""Columns of the feed that these functions need."""


def tasks_after(changes: DataFrame, tasks: DataFrame | None = None) -> DataFrame:
    """Return the tasks after some events, with the columns KEY and STATE.

    Args:
        changes: events with CHANGE_COLUMNS, without gaps for the tasks that they contain.
        tasks: tasks before the events, such as a snapshot; None: no task existed before.
    """
    newest = F.max_by(F.struct(F.col("to_state").alias("state"), *VALUES), "seq")
    changed = changes.groupBy(*KEY).agg(newest.alias("last")).select(*KEY, "last.*")
    existing = changed.where("state IS NOT NULL")
    if tasks is None:
        return existing
    unchanged = tasks.select(*KEY, *STATE).join(changed.select(*KEY), list(KEY), "left_anti")
    return unchanged.unionByName(existing)


def differences(expected: DataFrame, found: DataFrame) -> DataFrame:
    """Return the tasks that are missing, unexpected or different, with both states.

    Args:
        expected: tasks with the columns KEY and STATE.
        found: tasks with the columns KEY and STATE.
    """
    one = expected.select(*KEY, F.struct(*STATE).alias("expected"))
    other = found.select(*KEY, F.struct(*STATE).alias("found"))
    return one.join(other, list(KEY), "full_outer").where("NOT expected <=> found")
