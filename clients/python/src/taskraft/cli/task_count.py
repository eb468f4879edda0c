"""The command ``taskraft task count``."""

from __future__ import annotations

import click

from taskraft.cli.names import TUBE
from taskraft.cli.options import cluster_options, connect, examples, output_option
from taskraft.cli.output_shape import fields
from taskraft.cli.selection import count_tasks
from taskraft.cli.task_history import task

__all__ = ["task"]


@task.command(epilog=examples("taskraft task count emails --where 'age > 1h AND attempt > 0'"))
@click.argument("tube", type=TUBE)
@click.option("--where", default="", help="Filter, for example: state = BURIED AND attempt > 3.")
@output_option(fields("tube", "count"))
@cluster_options
def count(*, tube: str, where: str, output: str, target: str | None, timeout: float) -> None:
    """Count tasks of TUBE, without reading them."""
    from taskraft.cli.output import write_values

    with connect(target, timeout) as client:
        found = count_tasks(client.tube(tube), where)
    if not write_values([{"tube": tube, "count": found}], output):
        click.echo(found)
