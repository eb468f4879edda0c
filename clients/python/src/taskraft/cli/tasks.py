"""The commands ``taskraft kick``, ``delete``, ``peek`` and ``task``."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from taskraft.cli.confirmation import BY_FILTER, Confirmation, destroys
from taskraft.cli.names import TASK_NUMBER, TUBE
from taskraft.cli.options import (
    DURATION,
    SuggestingGroup,
    cluster_options,
    connect,
    examples,
    output_option,
    raw_option,
)
from taskraft.cli.selection import (
    TASKS_PREVIEW,
    check_selection,
    counted,
    dry_run_option,
    preview,
    selection_of,
    where_option,
)
from taskraft.cli.task_names import task_argument, tasks_argument
from taskraft.cli.watch import watch_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft import Task

PAYLOAD_CHARACTERS_MAX = 60
RESTARTABLE: Final = ("DELAYED", "BURIED", "DONE", "ZOMBIE")


@click.command(
    epilog=examples(
        "taskraft kick emails 100",
        "taskraft kick emails --id 17 --id 18",
        "taskraft kick emails --where 'attempt > 3' --dry-run",
    )
)
@click.argument("tube", type=TUBE)
@click.argument("count", type=click.IntRange(1), default=1)
@click.option(
    "--id",
    "ids",
    type=TASK_NUMBER,
    multiple=True,
    help="Id of a task to kick, instead of the first COUNT.",
)
@where_option
@dry_run_option
@click.option("--delay", type=DURATION, default="0s", help="Delay before the tasks are READY.")
@output_option("task_service_pb2.KickTasksResponse", preview=TASKS_PREVIEW)
@cluster_options
@click.pass_context
def kick(  # noqa: PLR0913 - one argument for each option
    ctx: click.Context,
    *,
    tube: str,
    count: int,
    ids: tuple[int, ...],
    where: str,
    dry_run: bool,
    delay: float,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Make the first COUNT buried tasks of TUBE READY again."""
    from taskraft.v1 import task_service_pb2

    is_counted = ctx.get_parameter_source("count") is ParameterSource.COMMANDLINE
    if is_counted + bool(ids) + bool(where) > 1:
        raise click.UsageError("Give only one of COUNT, --id and --where.")
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        if dry_run:
            if not ids and not where:
                buried = handle.list("state = BURIED")
                ids = tuple(task.id for task in islice(buried, count))
                where = "" if ids else "state = BURIED"
            preview(handle, ids, where, "kicked", output, ("BURIED",))
            return
        with selection_of(handle, ids, where, "kicking") as selection:
            kicked = handle.kick(count, ids=selection or None, delay=delay)
    answer = task_service_pb2.KickTasksResponse(count=kicked, buried=kicked.buried)
    remaining = f"kicked, {kicked.buried} left BURIED" if kicked.buried else "kicked"
    print_count(answer, remaining, output)


@click.command(
    epilog=examples(
        "taskraft delete emails 17 18 --yes", "taskraft delete emails --where 'state = DONE' --yes"
    )
)
@tasks_argument()
@where_option
@output_option("task_service_pb2.DeleteTasksResponse", preview=TASKS_PREVIEW)
@destroys("Removed tasks cannot be restored.")
@cluster_options
def delete(
    *,
    tube: str,
    ids: tuple[int, ...],
    where: str,
    confirmation: Confirmation,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Remove tasks of TUBE in any state."""
    from taskraft.v1 import task_service_pb2

    check_selection(ids, where)
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        if not confirmation.allows(
            lambda: f"Remove {counted(handle, ids, where)}?",
            lambda: preview(handle, ids, where, "deleted", output),
        ):
            return
        with selection_of(handle, ids, where, "deleting") as selection:
            deleted = handle.delete(selection)
    print_count(task_service_pb2.DeleteTasksResponse(count=deleted), "deleted", output)


@click.command(epilog=examples("taskraft peek emails 17 -o json"))
@tasks_argument(is_required=True)
@raw_option
@watch_option
@output_option("task_pb2.Task")
@cluster_options
def peek(
    *,
    tube: str,
    ids: tuple[int, ...],
    raw: bool,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Show tasks of TUBE without changing them."""
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        tasks = [handle.peek(task_id) for task_id in ids]
    _show(tasks, output, raw=raw)


@click.group(cls=SuggestingGroup, epilog=examples("taskraft task list emails"))
def task() -> None:
    """List, show, await, change, restart, move and cancel tasks."""


@task.command(
    "list", epilog=examples("taskraft task list emails --where 'state = BURIED' --limit 20")
)
@click.argument("tube", type=TUBE)
@click.option("--where", default="", help="Filter, for example: state = BURIED AND attempt > 3.")
@click.option(
    "--order-by",
    default="",
    help='Order: "id", "id desc", "taking" (order of takes) or "kicking" (BURIED, order of kicks).',
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Maximum number of tasks.",
)
@raw_option
@watch_option
@output_option("task_pb2.Task")
@cluster_options
def list_tasks(  # noqa: PLR0913 - one argument for each option
    *,
    tube: str,
    where: str,
    order_by: str,
    limit: int,
    raw: bool,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """List tasks of TUBE."""
    with connect(target, timeout) as client:
        tasks = list(islice(client.tube(tube).list(where, order_by=order_by), limit))
    _show(tasks, output, raw=raw)


@task.command(epilog=examples("taskraft task show emails 17"))
@task_argument
@raw_option
@watch_option
@output_option("task_pb2.Task")
@cluster_options
def show(
    *, tube: str, task_id: int, raw: bool, output: str, target: str | None, timeout: float
) -> None:
    """Show one task of TUBE with its last failures."""
    from taskraft.cli.output import write, write_payloads
    from taskraft.cli.task_details import print_details

    with connect(target, timeout) as client:
        found = client.tube(tube).peek(task_id)
    if raw:
        write_payloads([found])
        return
    if not write([found.message], output):
        print_details(found)


@task.command(epilog=examples("taskraft task wait sums 17 18 --wait 1m -o jsonl"))
@tasks_argument(is_required=True)
@click.option("--wait", type=DURATION, default="10s", show_default=True, help="Maximum wait.")
@output_option("task_pb2.Task")
@cluster_options
@click.pass_context
def wait(
    ctx: click.Context,
    *,
    tube: str,
    ids: tuple[int, ...],
    wait: float,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Wait until tasks of TUBE have ended or are BURIED.

    The exit code is 6 if they have not ended in time.
    """
    from taskraft.cli import failures
    from taskraft.cli.output import show_payload, write, write_table

    with connect(target, timeout) as client:
        ended = client.tube(tube).wait(ids, wait=wait)
    if not write([each.message for each in ended], output):
        write_table(
            ("ID", "OUTCOME", "ATTEMPT", "RESULT"),
            (
                (
                    str(each),
                    each.outcome,
                    each.attempt,
                    show_payload(each.result, PAYLOAD_CHARACTERS_MAX),
                )
                for each in ended
            ),
        )
    if any(each.outcome == "TIMEOUT" for each in ended):
        ctx.exit(failures.TIMEOUT)


@task.command(epilog=examples("taskraft task restart emails --where 'state = BURIED' --yes"))
@tasks_argument()
@where_option
@click.option("--delay", type=DURATION, default="0s", help="Delay before the tasks are READY.")
@output_option("task_service_pb2.RestartTasksResponse", preview=TASKS_PREVIEW)
@destroys("The previous states and attempts cannot be restored.", only=BY_FILTER)
@cluster_options
def restart(  # noqa: PLR0913 - one argument for each option
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
    """Restart tasks of TUBE, with attempts reset.

    The tasks may be DELAYED, BURIED or finished.
    """
    from taskraft.v1 import task_service_pb2

    check_selection(ids, where)
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        if not confirmation.allows(
            lambda: f"Restart {counted(handle, ids, where)}?",
            lambda: preview(handle, ids, where, "restarted", output, RESTARTABLE),
        ):
            return
        with selection_of(handle, ids, where, "restarting") as selection:
            count = handle.restart(selection, delay=delay)
    print_count(task_service_pb2.RestartTasksResponse(count=count), "restarted", output)


@task.command(
    epilog=examples(
        "taskraft task cancel emails 17 18 --yes",
        "taskraft task cancel emails --where 'type = mail' --yes",
    )
)
@tasks_argument()
@where_option
@output_option("task_service_pb2.CancelTasksResponse", preview=TASKS_PREVIEW)
@destroys("Removed tasks cannot be restored.")
@cluster_options
def cancel(
    *,
    tube: str,
    ids: tuple[int, ...],
    where: str,
    confirmation: Confirmation,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Ask the holders of tasks of TUBE to stop.

    Tasks without a holder are removed.
    """
    from taskraft.cli.output import write
    from taskraft.v1 import task_service_pb2

    check_selection(ids, where)
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        if not confirmation.allows(
            lambda: f"Cancel {counted(handle, ids, where)}?",
            lambda: preview(handle, ids, where, "asked to stop, or removed", output),
        ):
            return
        with selection_of(handle, ids, where, "cancelling") as selection:
            asked, removed = handle.cancel(selection)
    if not write([task_service_pb2.CancelTasksResponse(asked=asked, removed=removed)], output):
        click.echo(f"{asked} holders asked, {removed} removed")


def _show(tasks: Sequence[Task], output: str, *, raw: bool) -> None:
    from taskraft.cli.output import show_instant, show_payload, write, write_payloads, write_table

    if raw:
        write_payloads(tasks)
        return
    if write([task.message for task in tasks], output):
        return
    if output == "wide":
        write_table(
            (
                *("ID", "STATE", "SINCE", "ATTEMPT", "PRIORITY", "TYPE", "KEY", "SUBQUEUE"),
                *("GROUP", "PUT", "VISIBLE AT", "LEASE UNTIL", "PAYLOAD", "ERROR"),
            ),
            (
                (
                    str(task),
                    task.state,
                    show_instant(task.message.since_ms),
                    task.attempt,
                    task.priority,
                    task.message.spec.type,
                    "/".join(task.message.spec.unique_key),
                    task.message.spec.subqueue,
                    task.message.spec.group,
                    show_instant(task.message.created_ms),
                    show_instant(task.message.visible_at_ms),
                    show_instant(task.message.lease_until_ms),
                    show_payload(task.payload),
                    task.failure,
                )
                for task in tasks
            ),
        )
        return
    write_table(
        ("ID", "STATE", "ATTEMPT", "PRIORITY", "PAYLOAD", "ERROR"),
        (
            (
                str(task),
                task.state,
                task.attempt,
                task.priority,
                show_payload(task.payload, PAYLOAD_CHARACTERS_MAX),
                task.failure,
            )
            for task in tasks
        ),
    )


def print_count(response: CountedResponse, done: str, output: str) -> None:
    """Print the number of changed tasks."""
    from taskraft.cli.output import write

    if not write([response], output):
        click.echo(f"{response.count} {done}")


if TYPE_CHECKING:
    from taskraft.v1.task_service_pb2 import (
        BuryTasksResponse,
        DeleteTasksResponse,
        KickTasksResponse,
        MoveTasksResponse,
        RestartTasksResponse,
        SnatchTasksResponse,
        SwitchTasksResponse,
        UpdateTasksResponse,
    )

    CountedResponse = (
        BuryTasksResponse
        | DeleteTasksResponse
        | KickTasksResponse
        | MoveTasksResponse
        | RestartTasksResponse
        | SnatchTasksResponse
        | SwitchTasksResponse
        | UpdateTasksResponse
    )
