"""The commands ``taskraft export`` and ``taskraft import``: tasks as JSON lines."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Final

import click

from taskraft.cli.names import TUBE
from taskraft.cli.options import cluster_options, connect, examples, output_option
from taskraft.cli.output_shape import fields
from taskraft.cli.selection import listed, where_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from taskraft._planned_task import PlannedTask

FORMAT: Final = "taskraft.task.v1"
"""Format of a line: the fields "format", "tube", "id", "state" and "spec" (TaskSpec of the API)."""


@click.command(
    "export",
    epilog=examples(
        "taskraft export emails --file emails.jsonl",
        "taskraft export emails --where 'state = BURIED'",
    ),
)
@click.argument("tube", type=TUBE)
@where_option
@click.option(
    "--file", type=click.File("w", lazy=True), default="-", help='File; "-": standard output.'
)
@cluster_options
def export(*, tube: str, where: str, file: IO[str], target: str | None, timeout: float) -> None:
    """Write the tasks of TUBE as JSON lines, each with its state and all options of its put.

    The tasks stay in the tube. Leases, attempts and results are not part of the export.
    """
    from taskraft.cli.output import json_text, to_value

    with connect(target, timeout) as client:
        for task in listed(client.tube(tube), where, "exporting"):
            line = {
                "format": FORMAT,
                "tube": tube,
                "id": str(task.id),
                "state": task.state,
                "spec": to_value(task.message.spec),
            }
            file.write(json_text(line) + "\n")


@click.command(
    "import",
    epilog=examples(
        "taskraft import emails < emails.jsonl", "taskraft import emails --dry-run < emails.jsonl"
    ),
)
@click.argument("tube", type=TUBE)
@click.argument("file", type=click.File("r"), default="-")
@click.option("--dry-run", is_flag=True, help="Change nothing; check all lines and count them.")
@output_option(fields("tube", "count", "dry_run"))
@cluster_options
def import_(
    *, tube: str, file: IO[str], dry_run: bool, output: str, target: str | None, timeout: float
) -> None:
    """Put the tasks of an export into TUBE as new tasks with new ids.

    All lines are checked before the first put. A second import of the same file puts the tasks
    again, unless they have unique keys.
    """
    from taskraft.cli.output import write_values
    from taskraft.cli.progress import shown

    tasks = list(_tasks(file, tube))
    if not dry_run and tasks:
        with connect(target, timeout) as client:
            client.tube(tube).put_many(shown(tasks, "importing", len(tasks)))
    if not write_values([{"tube": tube, "count": len(tasks), "dry_run": dry_run}], output):
        click.echo(f"{len(tasks)} {'would be imported' if dry_run else 'imported'}")


def _tasks(file: IO[str], tube: str) -> Iterator[PlannedTask]:
    """Yield the task of each line.

    Raises:
        ValueError: a line is not a line of an export.
    """
    from google.protobuf import json_format

    from taskraft._planned_task import PlannedTask
    from taskraft.v1 import task_pb2

    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            is_known = value["format"] == FORMAT
            spec = json_format.ParseDict(value["spec"], task_pb2.TaskSpec())
        except KeyError as error:
            text = f"line {number} is not a line of an export: the member {error} is missing"
            raise ValueError(f"{text}; for lines of payloads, use taskraft put {tube} -") from None
        except (ValueError, TypeError, json_format.ParseError) as error:
            raise ValueError(f"line {number} is not a line of an export: {error}") from None
        if not is_known:
            raise ValueError(f"line {number} is not a line of an export of the format {FORMAT}")
        # Tasks and groups of another cluster are not dependencies of the new task.
        spec.ClearField("depends_on")
        spec.ClearField("group")
        yield PlannedTask(tube, spec)
