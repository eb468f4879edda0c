"""Plan tasks as files, and put them: dump current tasks, replay a dump, import other files.

A plan is a folder with the tasks as Parquet, and a file with the id of the plan. The id is the name
of the transaction that puts the tasks, so a plan is put once, also if it is run twice or killed.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from taskraft_pipeline.errors import JournalRefused, OptionInvalid
from taskraft_pipeline.journal.journal import publish, read_json, spark_path
from taskraft_pipeline.sink.task_rows import INTEGERS, TYPES
from taskraft_pipeline.spark_session import described

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = 1
DESCRIPTION: Final = "_plan.json"
KEPT: Final = (
    "tube",
    "payload",
    "priority",
    "ttl_ms",
    "ttr_ms",
    "subqueue",
    "type",
    "content_type",
)
"""Columns of a current task that a new task gets; 0 ms is the default of the tube."""
ABOUT: Final = ("task_id", "state", "attempt", "created_ts", "since_ts", "reason", "message")
"""Columns that a plan has for people, and for conditions."""
FORMATS: Final = ("parquet", "csv", "json")


@dataclass(slots=True, frozen=True)
class TaskPlan:
    """A written plan: its id, and the number of its tasks."""

    plan_id: str
    tasks: int


def dump(
    spark: SparkSession, endpoints: str, folder: Path, tubes: Sequence[str] = (), where: str = ""
) -> TaskPlan:
    """Write the current tasks of one revision as a plan.

    Args:
        spark: session with the time zone UTC.
        endpoints: addresses of nodes.
        folder: folder of the plan; it must not contain a plan.
        tubes: only tasks of these tubes. Empty: all.
        where: SQL condition on KEPT and ABOUT. Empty: all tasks.

    Raises:
        OptionInvalid: the folder contains a plan.
    """
    if (folder / DESCRIPTION).exists():
        raise OptionInvalid(f"{folder}: the folder contains a plan; choose a new folder")
    tasks = (
        spark.read.format("taskraft")
        .option("endpoints", endpoints)
        .option("read", "tasks")
        .option("columns", ",".join((*ABOUT, *KEPT)))
        .option("tubes", ",".join(tubes))
        .load()
    )
    place = spark_path(folder.absolute() / "tasks")
    with described(spark, "taskraft dump: reads the current tasks"):
        (tasks.where(where) if where else tasks).write.mode("overwrite").parquet(place)
    written = TaskPlan(str(uuid.uuid4()), spark.read.parquet(place).count())
    content = {"format": FORMAT, "id": written.plan_id, "tasks": written.tasks}
    publish(folder / DESCRIPTION, content)
    return written


def replay(
    spark: SparkSession, endpoints: str, folder: Path, tube: str = "", per_second: int = 0
) -> TaskPlan:
    """Put the tasks of a plan as new tasks; a plan that was put before adds nothing.

    Args:
        spark: session with the time zone UTC.
        endpoints: addresses of nodes.
        folder: folder of the plan.
        tube: tube of the new tasks. Empty: the tube of each task.
        per_second: number of tasks that become READY per second. 0: all at once.

    Raises:
        JournalRefused: the folder contains no plan of this format.
    """
    description = folder / DESCRIPTION
    if not description.exists():
        raise JournalRefused(f"{folder}: the folder contains no plan; write one with dump")
    stored = read_json(description)
    if stored.get("format") != FORMAT:
        raise JournalRefused(
            f"{folder}: format {stored.get('format')}, this release reads {FORMAT}"
        )
    plan = TaskPlan(str(stored["id"]), int(str(stored["tasks"])))
    rows = spark.read.parquet(spark_path(folder.absolute() / "tasks"))
    texts = [f"nullif({name}, 0) AS {name}" if name.endswith("_ms") else name for name in KEPT]
    kept = rows.selectExpr("task_id", *texts)
    if tube:
        kept = kept.drop("tube")
    put(
        paced(kept, ("task_id",), per_second).drop("task_id"),
        endpoints,
        f"plan-{plan.plan_id}",
        tube,
    )
    return plan


def import_files(
    spark: SparkSession,
    endpoints: str,
    path: str,
    file_format: str,
    *,
    name: str,
    tube: str = "",
    per_second: int = 0,
) -> None:
    """Put a task for each row of some files; a second import of the same name adds nothing.

    Args:
        spark: session with the time zone UTC.
        endpoints: addresses of nodes.
        path: files or folder, as Spark reads them.
        file_format: one of FORMATS; CSV files have a line with the names of the columns.
        name: name of the import.
        tube: tube of rows without a tube.
        per_second: number of tasks that become READY per second. 0: all at once.
    """
    rows = spark.read.format(file_format).option("header", "true").load(path)
    numbers = [column for column, kinds in TYPES.items() if kinds is INTEGERS]
    found = rows.selectExpr(
        *(
            f"CAST(`{column}` AS BIGINT) AS `{column}`" if column in numbers else f"`{column}`"
            for column in rows.columns
        )
    )
    put(paced(found, ("payload",), per_second), endpoints, f"import-{name}", tube)


def paced(rows: DataFrame, order: Sequence[str], per_second: int) -> DataFrame:
    """Return rows with delays that make ``per_second`` tasks READY in each second.

    The rows pass through one Spark task, which numbers them. 0: no delays.
    """
    if per_second:
        number = F.row_number().over(Window.orderBy(*order)) - 1
        rows = rows.withColumn("delay_ms", (number * 1_000 / per_second).cast("bigint"))
    return rows


def put(rows: DataFrame, endpoints: str, app: str, tube: str) -> None:
    """Put a task for each row in one transaction of the application ``app``."""
    writer = rows.write.format("taskraft").mode("append").option("endpoints", endpoints)
    writer.option("tube", tube).option("txnAppId", app).option("txnVersion", "0")
    with described(rows.sparkSession, f"taskraft put: {app}"):
        writer.save()
