"""The commands ``taskraft task bury``, ``update``, ``switch`` and ``snatch``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from taskraft.cli.confirmation import BY_FILTER, Confirmation, destroys
from taskraft.cli.moves import task
from taskraft.cli.options import DURATION, cluster_options, connect, examples, output_option
from taskraft.cli.selection import (
    TASKS_PREVIEW,
    check_selection,
    counted,
    dry_run_option,
    preview,
    selection_of,
    where_option,
)
from taskraft.cli.task_names import tasks_argument
from taskraft.cli.tasks import print_count

if TYPE_CHECKING:
    from taskraft._async_selected_tasks import State
    from taskraft._task_selection import TaskChanges

__all__ = ["task"]
BURIABLE: Final = ("READY", "DELAYED", "BURIED")
CHANGEABLE: Final = ("HELD", "READY", "DELAYED", "BURIED")
SWITCHABLE: Final = ("READY", "DELAYED", "BURIED", "DONE", "ZOMBIE")
TIMED: Final = ("delayed", "zombie")
"""States for which a switch needs a duration."""


@task.command(epilog=examples("taskraft task bury emails --where 'type = mail' --reason outage"))
@tasks_argument()
@where_option
@dry_run_option
@click.option("--reason", default="", help="Reason, stored as the failure of the tasks.")
@output_option("task_service_pb2.BuryTasksResponse", preview=TASKS_PREVIEW)
@cluster_options
def bury(  # noqa: PLR0913 - one argument for each option
    *,
    tube: str,
    ids: tuple[int, ...],
    where: str,
    dry_run: bool,
    reason: str,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Bury tasks of TUBE that have no holder.

    A kick makes the tasks READY again.
    """
    from taskraft.v1 import task_service_pb2

    check_selection(ids, where)
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        if dry_run:
            preview(handle, ids, where, "buried", output, BURIABLE)
            return
        with selection_of(handle, ids, where, "burying") as selection:
            count = handle.bury(selection, reason=reason)
    print_count(task_service_pb2.BuryTasksResponse(count=count), "buried", output)


@task.command(
    epilog=examples("taskraft task update emails --where 'type = mail' --priority -5 --yes")
)
@tasks_argument()
@where_option
@click.option("--priority", type=int, help="New priority; a lower number is more urgent.")
@click.option("--delay", type=DURATION, help="New delay from now; 0s ends the delay.")
@click.option("--ttl", type=DURATION, help="New TTL from now.")
@click.option("--ttr", type=DURATION, help="New TTR, from the next take on.")
@click.option("--payload", help="New payload; JSON is stored as JSON, other text as text.")
@output_option("task_service_pb2.UpdateTasksResponse", preview=TASKS_PREVIEW)
@destroys("The previous values cannot be restored.", only=BY_FILTER)
@cluster_options
def update(
    *,
    tube: str,
    ids: tuple[int, ...],
    where: str,
    confirmation: Confirmation,
    output: str,
    target: str | None,
    timeout: float,
    **changes: Any,  # noqa: ANN401 - one type for each option
) -> None:
    """Change tasks of TUBE that are HELD, READY, DELAYED or BURIED."""
    from taskraft.v1 import task_service_pb2

    check_selection(ids, where)
    given = _given(changes)
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        if not confirmation.allows(
            lambda: f"Change {counted(handle, ids, where)}?",
            lambda: preview(handle, ids, where, "changed", output, CHANGEABLE),
        ):
            return
        with selection_of(handle, ids, where, "changing") as selection:
            count = handle.update(selection, **given)
    print_count(task_service_pb2.UpdateTasksResponse(count=count), "changed", output)


def _given(changes: dict[str, Any]) -> TaskChanges:
    """Return the changes that the options name."""
    from taskraft.cli.put import content_type_of

    given: TaskChanges = {}
    for name in ("priority", "delay", "ttl", "ttr"):
        if changes[name] is not None:
            given[name] = changes[name]
    if changes["payload"] is not None:
        content = changes["payload"].encode()
        given["payload"], given["content_type"] = content, content_type_of(content)
    if not given:
        raise click.UsageError("Give at least one option to change.")
    return given


@task.command(
    epilog=examples(
        "taskraft task switch emails 17 --to delayed --duration 1h",
        "taskraft task switch emails --where 'type = mail' --to done --yes",
    )
)
@tasks_argument()
@where_option
@click.option(
    "--to",
    type=click.Choice([state.lower() for state in SWITCHABLE]),
    required=True,
    help="New state.",
)
@click.option(
    "--duration",
    type=DURATION,
    help="Delay of a task that becomes DELAYED, or retention of a ZOMBIE.",
)
@output_option("task_service_pb2.SwitchTasksResponse", preview=TASKS_PREVIEW)
@destroys("The previous states cannot be restored.", only=BY_FILTER)
@cluster_options
def switch(  # noqa: PLR0913 - one argument for each option
    *,
    tube: str,
    ids: tuple[int, ...],
    where: str,
    confirmation: Confirmation,
    to: State,
    duration: float | None,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Set the state of tasks of TUBE that have no holder.

    Tasks that are already in the state are not changed. The states "delayed" and "zombie" need
    --duration.
    """
    from taskraft.v1 import task_service_pb2

    check_selection(ids, where)
    if (duration is not None) is not (to in TIMED):
        needs = "needs" if to in TIMED else "has no"
        raise click.UsageError(f"The state {to} {needs} --duration.")
    others = [state for state in SWITCHABLE if state != to.upper()]
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        if not confirmation.allows(
            lambda: f"Set the state of {counted(handle, ids, where)} to {to.upper()}?",
            lambda: preview(handle, ids, where, f"set to {to.upper()}", output, others),
        ):
            return
        with selection_of(handle, ids, where, "changing") as selection:
            count = handle.switch(selection, to, duration=duration or 0)
    print_count(task_service_pb2.SwitchTasksResponse(count=count), "changed", output)


@task.command(
    epilog=examples(
        "taskraft task snatch emails 17 --delay 1m",
        "taskraft task snatch emails --where 'type = mail' --yes",
    )
)
@tasks_argument()
@where_option
@click.option("--delay", type=DURATION, default="0s", help="Delay before the tasks are READY.")
@output_option("task_service_pb2.SnatchTasksResponse", preview=TASKS_PREVIEW)
@destroys("The holders cannot get their leases back.", only=BY_FILTER)
@cluster_options
def snatch(  # noqa: PLR0913 - one argument for each option
    *,
    tube: str,
    ids: tuple[int, ...],
    where: str,
    confirmation: Confirmation,
    delay: float,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Take TAKEN tasks of TUBE away from their holders.

    The leases end, and the tasks become READY. A holder that still works cannot settle its task.
    """
    from taskraft.v1 import task_service_pb2

    check_selection(ids, where)
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        if not confirmation.allows(
            lambda: f"Take away {counted(handle, ids, where)}?",
            lambda: preview(handle, ids, where, "taken away", output, ("TAKEN",)),
        ):
            return
        with selection_of(handle, ids, where, "taking away") as selection:
            count = handle.snatch(selection, delay=delay)
    print_count(task_service_pb2.SnatchTasksResponse(count=count), "taken away", output)
