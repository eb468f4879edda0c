"""The commands ``taskraft task move`` and ``taskraft task redrive``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from taskraft.cli.confirmation import BY_FILTER, Condition, Confirmation, destroys
from taskraft.cli.names import TUBE
from taskraft.cli.options import DURATION, cluster_options, connect, examples, output_option
from taskraft.cli.selection import (
    TASKS_PREVIEW,
    check_selection,
    counted,
    preview,
    selection_of,
    where_option,
)
from taskraft.cli.task_names import tasks_argument
from taskraft.cli.tasks import print_count, task

if TYPE_CHECKING:
    from taskraft import Task
    from taskraft._retry import Position

__all__ = ["task"]
WITHOUT_IDS: Final = Condition("Without ids", lambda given: not given["ids"])
MOVABLE: Final = ("READY", "DELAYED", "BURIED")


@task.command(
    epilog=examples("taskraft task move dead --where 'origin = emails' --to parked --yes")
)
@tasks_argument()
@click.option("--to", type=TUBE, required=True, help="Name of the other tube.")
@where_option
@click.option("--delay", type=DURATION, help="Delay in the other tube; 0s: no task is delayed.")
@click.option(
    "--position", type=click.Choice(["front", "back"]), help="Before or behind all READY tasks."
)
@click.option("--renew-times", is_flag=True, help="Use the default TTL and TTR of the other tube.")
@output_option("task_service_pb2.MoveTasksResponse", preview=TASKS_PREVIEW)
@destroys("Moved tasks do not get their previous ids back.", only=BY_FILTER)
@cluster_options
def move(  # noqa: PLR0913 - one argument for each option
    *,
    tube: str,
    ids: tuple[int, ...],
    to: str,
    where: str,
    confirmation: Confirmation,
    delay: float | None,
    position: Position | None,
    renew_times: bool,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Move tasks of TUBE that have no holder to another tube.

    The tasks may be READY, DELAYED or BURIED. In the other tube they are new tasks with new ids.
    """
    from taskraft.v1 import task_service_pb2

    check_selection(ids, where)
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        if not confirmation.allows(
            lambda: f"Move {counted(handle, ids, where)} to {to}?",
            lambda: preview(handle, ids, where, "moved", output, MOVABLE),
        ):
            return
        with selection_of(handle, ids, where, "moving") as selection:
            count = handle.move(
                selection, to, delay=delay, position=position, renew_times=renew_times
            )
    print_count(task_service_pb2.MoveTasksResponse(count=count), "moved", output)


@task.command(
    epilog=examples("taskraft task redrive dead --yes", "taskraft task redrive dead 17 18")
)
@tasks_argument()
@click.option(
    "--where", default="", help="Filter that selects the tasks; default: all dead letters."
)
@click.option("--delay", type=DURATION, help="Delay before the tasks are READY.")
@output_option("task_service_pb2.MoveTasksResponse", preview=TASKS_PREVIEW)
@destroys("Moved tasks do not get their previous ids back.", only=WITHOUT_IDS)
@cluster_options
def redrive(  # noqa: PLR0913 - one argument for each option
    *,
    tube: str,
    ids: tuple[int, ...],
    where: str,
    confirmation: Confirmation,
    delay: float | None,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Move dead letters of TUBE back to the tubes that they came from.

    Tasks of TUBE that are not dead letters stay.
    """
    from taskraft.v1 import task_service_pb2

    everything = "origin:*" if not ids and not where else where
    check_selection(ids, everything)
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        if not confirmation.allows(
            lambda: f"Move {counted(handle, ids, everything)} back?",
            lambda: preview(
                handle, ids, everything, "moved back", output, MOVABLE, _is_dead_letter
            ),
        ):
            return
        with selection_of(handle, ids, everything, "moving back") as selection:
            count = handle.redrive(selection, delay=delay)
    print_count(task_service_pb2.MoveTasksResponse(count=count), "moved back", output)


def _is_dead_letter(task: Task) -> bool:
    return task.message.HasField("origin")
