"""The command ``taskraft group``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from taskraft.cli.options import SuggestingGroup, cluster_options, connect, examples, output_option
from taskraft.cli.watch import watch_option

if TYPE_CHECKING:
    from taskraft import Group


@click.group(cls=SuggestingGroup, epilog=examples("taskraft group show book-1"))
def group() -> None:
    """Create, show, start and cancel groups of tasks."""


@group.command(epilog=examples("taskraft group create book-1 --end books bind"))
@click.argument("name")
@click.option(
    "--end",
    nargs=2,
    metavar="TUBE PAYLOAD",
    help="Task to put when all tasks of the group have ended.",
)
@click.option(
    "--abort",
    nargs=2,
    metavar="TUBE PAYLOAD",
    help="Task to put instead if the group is cancelled.",
)
@click.option(
    "--only-if-processed", is_flag=True, help="Put the end task only if no task has failed."
)
@output_option
@cluster_options
def create(
    *,
    name: str,
    end: tuple[str, str] | None,
    abort: tuple[str, str] | None,
    only_if_processed: bool,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Create the group NAME.

    Tasks that are put with --group are HELD until the group is started.
    """
    with connect(target, timeout) as client:
        end_task, abort_task = (
            None if task is None else client.tube(task[0]).task(task[1]) for task in (end, abort)
        )
        created = client.groups.create(
            name, end_task=end_task, abort_task=abort_task, only_if_processed=only_if_processed
        )
    _show(created, output)


@group.command(epilog=examples("taskraft group show book-1"))
@click.argument("name")
@watch_option
@output_option
@cluster_options
def show(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Show the group NAME with the outcomes of its tasks."""
    with connect(target, timeout) as client:
        found = client.groups.get(name)
    _show(found, output)


@group.command(epilog=examples("taskraft group start book-1"))
@click.argument("name")
@output_option
@cluster_options
def start(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Start the group NAME, so that its HELD tasks can become READY."""
    with connect(target, timeout) as client:
        started = client.groups.start(name)
    _show(started, output)


@group.command(epilog=examples("taskraft group cancel book-1 --revoke"))
@click.argument("name")
@click.option("--revoke", is_flag=True, help="Also remove TAKEN tasks.")
@output_option
@cluster_options
def cancel(*, name: str, revoke: bool, output: str, target: str | None, timeout: float) -> None:
    """Remove the tasks of the group NAME that have no holder.

    The holders of the other tasks are asked to stop.
    """
    with connect(target, timeout) as client:
        cancelled = client.groups.cancel(name, revoke=revoke)
    _show(cancelled, output)


def _show(found: Group, output: str) -> None:
    from taskraft.cli.output import write, write_table

    if write([found.message], output):
        return
    write_table(
        ("NAME", "STATE", "OPEN", "PROCESSED", "FAILED", "CANCELLED", "ERROR"),
        [
            (
                found.name,
                found.state,
                found.open,
                found.processed,
                found.failed,
                found.cancelled,
                found.last_error.message if found.last_error else "",
            )
        ],
    )
