"""Options that select tasks for a change, and the preview of such a change."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, ParamSpec

import click

from taskraft.cli.options import confirm

if TYPE_CHECKING:
    from collections.abc import Collection

    from taskraft import Task
    from taskraft._sync_tube import Tube
    from taskraft._task_selection import TaskSelection

Params = ParamSpec("Params")
SAMPLE_TASKS: Final = 10
"""Number of tasks that a preview shows."""
ALL_STATES: Final = ("READY", "DELAYED", "TAKEN", "BURIED", "HELD", "DONE", "ZOMBIE")

where_option = click.option(
    "--where", default="", help="Filter that selects the tasks, for example: attempt > 3."
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Change nothing; show the number of tasks and some of them."
)


def selection_from(ids: tuple[int, ...], where: str) -> TaskSelection:
    """Return the selection of the arguments: either ids or a filter."""
    from taskraft import Where

    if bool(ids) is bool(where):
        raise click.UsageError("Give either ids or a filter with --where.")
    return Where(where) if where else ids


def found_tasks(tube: Tube, ids: tuple[int, ...], where: str) -> list[Task]:
    """Return the tasks of a selection.

    Raises:
        TaskNotFound: there is no task with one of the ids.
    """
    return [tube.peek(task_id) for task_id in ids] if ids else [*tube.list(where)]


def preview(
    tube: Tube,
    ids: tuple[int, ...],
    where: str,
    done: str,
    output: str,
    states: Collection[str] = ALL_STATES,
) -> None:
    """Print how many tasks a change would affect, and some of them.

    Args:
        tube: tube of the tasks.
        ids: selected tasks.
        where: filter that selects the tasks, if there are no ids.
        done: the change as a participle, for example "kicked".
        output: output format.
        states: states in which a task can be changed.
    """
    from taskraft.cli.output import show_payload, to_value, write_table, write_values

    selected = found_tasks(tube, ids, where)
    tasks = [task for task in selected if task.state in states]
    sample = tasks[:SAMPLE_TASKS]
    value = {
        "dry_run": True,
        "count": len(tasks),
        "other_state": len(selected) - len(tasks),
        "sample": [to_value(task.message) for task in sample],
    }
    if write_values([value], output):
        return
    others = len(selected) - len(tasks)
    click.echo(
        f"{len(tasks)} would be {done}" + (f", {others} are in another state" if others else "")
    )
    if sample:
        write_table(
            ("ID", "STATE", "ATTEMPT", "PAYLOAD"),
            (
                (str(task), task.state, task.attempt, show_payload(task.payload, 60))
                for task in sample
            ),
        )


def confirm_removal(tube: Tube, where: str, *, yes: bool) -> None:
    """Ask for confirmation before the tasks of a filter are removed, unless --yes was given.

    Raises:
        click.UsageError: nobody can answer, and --yes was not given.
        click.ClickException: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("The input is not a terminal; give --yes to confirm.")
    count = sum(1 for _ in tube.list(where))
    confirm(f"Remove {count} tasks of {tube.name}?")
