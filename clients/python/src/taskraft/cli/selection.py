"""Options that select tasks for a change, and the preview of such a change."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, ParamSpec

import click

from taskraft.cli.output_shape import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from taskraft import Task
    from taskraft._sync_tube import Tube
    from taskraft._task_selection import TaskSelection
    from taskraft.cli.progress import WorkProgress

Params = ParamSpec("Params")
SAMPLE_TASKS: Final = 10
"""Number of tasks that a preview shows."""
TASKS_PREVIEW: Final = fields("dry_run", "count", "other_state", "sample")
"""Shape of the output of a preview."""
ALL_STATES: Final = ("READY", "DELAYED", "TAKEN", "BURIED", "HELD", "DONE", "ZOMBIE")

where_option = click.option(
    "--where", default="", help="Filter that selects the tasks, for example: attempt > 3."
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Change nothing; show the number of tasks and some of them."
)


def check_selection(ids: tuple[int, ...], where: str) -> None:
    """Check that the arguments have either ids or a filter."""
    if bool(ids) is bool(where):
        raise click.UsageError("Give either ids or a filter with --where.")


@contextmanager
def selection_of(
    tube: Tube, ids: tuple[int, ...], where: str, doing: str
) -> Iterator[TaskSelection]:
    """Yield the selection of the arguments, and show the progress of its change.

    The remaining time of a filter is estimated from the ids that the calls have examined.
    """
    from taskraft import Where
    from taskraft.cli.progress import WorkProgress

    with WorkProgress(doing) as progress:
        if not where:
            yield ids
            return
        yield Where(where, progress.advance, _examined(tube, progress))


def listed(tube: Tube, where: str, doing: str) -> Iterator[Task]:
    """Yield the tasks that match a filter by id, and show the progress of the loop that uses them.

    The remaining time is estimated from the ids.
    """
    from taskraft.cli.progress import WorkProgress

    with WorkProgress(doing) as progress:
        examined = _examined(tube, progress)
        for task in tube.list(where):
            yield task
            progress.advance(1)
            examined(task.id)


def _examined(tube: Tube, progress: WorkProgress) -> Callable[[int], None]:
    """Return a function that tells the progress up to which id the tasks were examined."""
    first, last = _id_range(tube) if progress.is_possible else (0, 0)

    def examined(task_id: int) -> None:
        if first <= task_id < last:
            progress.examined((task_id - first + 1) / (last - first + 1))

    return examined


def _id_range(tube: Tube) -> tuple[int, int]:
    """Return the lowest and the highest id of the tasks in a tube; 0 if there is no task."""
    ends = [tube.page(order_by=order, size=1, payload=False).tasks for order in ("id", "id desc")]
    first, last = ([task.id for task in tasks] or [0] for tasks in ends)
    return first[0], last[0]


def count_tasks(tube: Tube, where: str) -> int:
    """Return the number of tasks that match a filter, and show how many were examined."""
    from taskraft.cli.progress import WorkProgress

    done = 0
    with WorkProgress("examining") as progress:

        def report(_count: int, examined: int) -> None:
            nonlocal done
            progress.advance(examined - done)
            done = examined

        return tube.count(where, report=report)


def found_tasks(tube: Tube, ids: tuple[int, ...], where: str) -> list[Task]:
    """Return the tasks of a selection.

    Raises:
        TaskNotFound: there is no task with one of the ids.
    """
    if ids:
        return [tube.peek(task_id) for task_id in ids]
    return [*listed(tube, where, "counting")]


def preview(
    tube: Tube,
    ids: tuple[int, ...],
    where: str,
    done: str,
    output: str,
    states: Collection[str] = ALL_STATES,
    accepts: Callable[[Task], bool] = lambda _task: True,
) -> None:
    """Print how many tasks a change would affect, and some of them.

    Args:
        tube: tube of the tasks.
        ids: selected tasks.
        where: filter that selects the tasks, if there are no ids.
        done: the change as a participle, for example "kicked".
        output: output format.
        states: states in which a task can be changed.
        accepts: returns whether a task in one of the states can be changed.
    """
    from taskraft.cli.output import show_payload, to_value, write_table, write_values

    selected = found_tasks(tube, ids, where)
    tasks = [task for task in selected if task.state in states and accepts(task)]
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
    click.echo(f"{len(tasks)} would be {done}" + (f", {others} would stay" if others else ""))
    if sample:
        write_table(
            ("ID", "STATE", "ATTEMPT", "PAYLOAD"),
            (
                (str(task), task.state, task.attempt, show_payload(task.payload, 60))
                for task in sample
            ),
        )


def counted(tube: Tube, ids: tuple[int, ...], where: str) -> str:
    """Return the number of selected tasks and their tube for a question."""
    count = len(ids) or count_tasks(tube, where)
    return f"{count} {'task' if count == 1 else 'tasks'} of {tube.name}"
