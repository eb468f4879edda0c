"""The commands ``taskraft export`` and ``taskraft import``: tasks as JSON lines."""

from __future__ import annotations

from typing import IO, Final

import click

from taskraft.cli.exported_task import OPTIONAL, line_of, read_tasks
from taskraft.cli.names import TUBE
from taskraft.cli.options import cluster_options, connect, examples, output_option
from taskraft.cli.output_shape import fields
from taskraft.cli.selection import listed, where_option

FINISHED: Final = ("DONE", "ZOMBIE")


@click.command(
    "export",
    epilog=examples(
        "taskraft export emails --file emails.jsonl",
        "taskraft export emails --where 'state = BURIED'",
        "taskraft export emails --finished --file archive.jsonl",
    ),
)
@click.argument("tube", type=TUBE)
@where_option
@click.option("--finished", is_flag=True, help="Export finished tasks too (DONE and ZOMBIE).")
@click.option(
    "--file", type=click.File("w", lazy=True), default="-", help='File; "-": standard output.'
)
@cluster_options
def export(
    *, tube: str, where: str, finished: bool, file: IO[str], target: str | None, timeout: float
) -> None:
    """Write the unfinished tasks of TUBE as JSON lines, each with its options, state and times.

    The tasks stay in the tube. Lease tokens and session ids are not part of the export.
    """
    left_out = 0
    with connect(target, timeout) as client:
        for task in listed(client.tube(tube), where, "exporting"):
            if task.state in FINISHED and not finished:
                left_out += 1
            else:
                file.write(line_of(task) + "\n")
    if left_out:
        click.echo(f"{left_out} finished tasks were left out; see --finished", err=True)


@click.command(
    "import",
    epilog=examples(
        "taskraft import emails < emails.jsonl",
        "taskraft import emails --dry-run < emails.jsonl",
        "taskraft import emails --without lease --without history < emails.jsonl",
    ),
)
@click.argument("tube", type=TUBE)
@click.argument("file", type=click.File("r"), default="-")
@click.option(
    "--without",
    type=click.Choice(OPTIONAL),
    multiple=True,
    help="Import tasks without this, instead of refusing them; repeat the option for several. "
    "lease: TAKEN tasks become READY. history: attempts, burials and failures. expired: leave out "
    "tasks whose time to live has ended.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; check all lines and count them.")
@output_option(fields("tube", "count", "left_out", "dry_run"))
@cluster_options
def import_(
    *,
    tube: str,
    file: IO[str],
    without: tuple[str, ...],
    dry_run: bool,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Put the tasks of an export into TUBE, with their options, states and deadlines.

    The tasks get new ids. Tasks that cannot be restored exactly are named, and nothing is
    imported. All tasks are checked before the first put. A second import of the same file puts the
    tasks again, unless they have unique keys.
    """
    from taskraft.cli.output import write_values
    from taskraft.cli.progress import WorkProgress
    from taskraft.cli.task_import import TaskImport

    exported = [*read_tasks(file)]
    with connect(target, timeout) as client:
        task_import = TaskImport(client, tube, without)
        chosen = task_import.checked(exported)
        if not dry_run:
            with WorkProgress("importing", len(chosen)) as progress:
                task_import.put(chosen, progress)
    count, left_out = len(chosen), len(exported) - len(chosen)
    value = {"tube": tube, "count": count, "left_out": left_out, "dry_run": dry_run}
    if not write_values([value], output):
        done = "would be imported" if dry_run else "imported"
        click.echo(f"{count} {done}" + (f", {left_out} left out" if left_out else ""))
