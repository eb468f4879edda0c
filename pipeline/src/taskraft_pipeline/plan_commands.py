"""The commands that dump current tasks, and put tasks from a dump or from other files.

Each command imports its dependencies when it runs, so that help and usage errors are fast.
"""
# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from taskraft.cli.options import examples
from taskraft_pipeline.command_options import settings, spark_options, target_option

if TYPE_CHECKING:
    from collections.abc import Sequence

RATE: Final = click.option(
    "--rate",
    type=click.IntRange(min=0),
    default=0,
    help="Tasks that become READY per second; 0: all at once.",
)


@click.command(
    epilog=examples(
        "taskraft pipeline dump var/plan --tubes emails --where \"reason = 'TimeoutError'\""
    )
)
@target_option
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--tubes", default="", help="Only these tubes, separated by commas.")
@click.option("--where", default="", help="SQL condition, for example: state = 'buried'.")
@spark_options
def dump(
    endpoints: str, folder: Path, tubes: str, where: str, master: str, conf: Sequence[str]
) -> None:
    """Write the current tasks of one revision into FOLDER, as a plan for replay.

    The files are Parquet with payload, options, state and last failure; without headers, unique
    keys, groups and dependencies.
    """
    from taskraft_pipeline.spark_session import spark_session
    from taskraft_pipeline.task_plan import dump as write

    wanted = tuple(tube.strip() for tube in tubes.split(",") if tube.strip())
    with spark_session("taskraft dump", master, is_brief=True, settings=settings(conf)) as spark:
        plan = write(spark, endpoints, folder, wanted, where)
    click.echo(f"{folder}: {plan.tasks:,} tasks, plan {plan.plan_id}")


@click.command(epilog=examples("taskraft pipeline replay var/plan --rate 50"))
@target_option
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--tube", default="", help="Tube of the new tasks, instead of the tube of each task.")
@RATE
@spark_options
def replay(
    endpoints: str, folder: Path, tube: str, rate: int, master: str, conf: Sequence[str]
) -> None:
    """Put the tasks of the plan in FOLDER as new tasks, once.

    A second run of a plan within 30 days adds nothing. The old tasks do not change.
    """
    from taskraft_pipeline.spark_session import spark_session
    from taskraft_pipeline.task_plan import replay as put_plan

    with spark_session("taskraft replay", master, is_brief=True, settings=settings(conf)) as spark:
        plan = put_plan(spark, endpoints, folder, tube, rate)
    click.echo(f"{folder}: {plan.tasks:,} tasks are put, once by plan {plan.plan_id}")


@click.command(
    "import",
    epilog=examples(
        "taskraft pipeline import customers.csv --format csv --tube emails --name customers-1"
    ),
)
@target_option
@click.argument("path")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(("parquet", "csv", "json")),
    default="parquet",
    show_default=True,
    help="Format of the files; CSV has the names of the columns in its first line.",
)
@click.option("--name", required=True, help="Name of the import; each name is put once.")
@click.option("--tube", default="", help="Tube of the rows without the column tube.")
@RATE
@spark_options
def import_(  # noqa: PLR0913, PLR0917 - click passes options like this
    endpoints: str,
    path: str,
    file_format: str,
    name: str,
    tube: str,
    rate: int,
    master: str,
    conf: Sequence[str],
) -> None:
    """Put a task for each row of the files at PATH, once.

    docs/pipeline.md lists the columns. A second import of the same name within 30 days adds
    nothing.
    """
    from taskraft_pipeline.spark_session import spark_session
    from taskraft_pipeline.task_plan import import_files

    with spark_session("taskraft import", master, is_brief=True, settings=settings(conf)) as spark:
        import_files(spark, endpoints, path, file_format, name=name, tube=tube, per_second=rate)
    click.echo(f"{path}: the tasks are put, once by import {name}")


PLAN_COMMANDS: Final = (dump, replay, import_)
