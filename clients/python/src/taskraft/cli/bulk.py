"""The commands ``taskraft bulk``: start, list, show and stop changes of many tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import click

from taskraft.cli.confirmation import Condition, Confirmation, destroys
from taskraft.cli.names import TUBE
from taskraft.cli.options import (
    SuggestingGroup,
    cluster_options,
    connect,
    examples,
    output_option,
)
from taskraft.cli.selection import TASKS_PREVIEW, counted, preview
from taskraft.cli.watch import watch_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft._async_bulk_sweeps import BulkAction
    from taskraft.v1.bulk_sweep_pb2 import BulkSweep

ACTIONS: Final = ("kick", "restart", "bury", "delete", "move")
LOSING: Final = Condition(
    "For delete, move and restart",
    lambda given: given["action"] in ("delete", "move", "restart"),
)
TITLES: Final = (
    *("SWEEP", "STATE", "ACTION", "TUBE", "TASKS", "CHANGED", "REFUSED", "DONE", "STARTED"),
)


@click.group(cls=SuggestingGroup, epilog=examples("taskraft bulk list"))
def bulk() -> None:
    """Change many tasks on the server, step by step.

    A bulk sweep continues after a change of leader and a restart of all nodes.
    """


@bulk.command(
    epilog=examples(
        "taskraft bulk start kick mail --where 'failure.type = Timeout'",
        "taskraft bulk start delete mail --where 'state = READY' --yes",
    )
)
@click.argument("action", type=click.Choice(ACTIONS))
@click.argument("tube", type=TUBE)
@click.option("--where", default="", help="Filter of the tasks, see docs/filters.md. Default: all.")
@click.option("--to", type=TUBE, default="", help="Target tube of move.")
@click.option("--reason", default="", help="Reason of bury.")
@click.option(
    "--rate",
    type=click.IntRange(1, 10_000),
    default=1_000,
    show_default=True,
    help="Maximum number of tasks per second.",
)
@output_option("bulk_sweep_pb2.BulkSweep", preview=TASKS_PREVIEW)
@destroys("A delete, a move or a restart cannot be undone.", only=LOSING)
@cluster_options
def start(  # noqa: PLR0913 - one argument for each option
    *,
    action: str,
    tube: str,
    where: str,
    to: str,
    reason: str,
    rate: int,
    confirmation: Confirmation,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Start a change of all tasks that match a filter.

    Tasks that are put later do not count. Tasks that have changed meanwhile, so that they do not
    match any more, are left out.
    """
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        if not confirmation.allows(
            lambda: f"{action.title()} {counted(handle, (), where)}?",
            lambda: preview(handle, (), where, f"selected to {action}", output),
        ):
            return
        sweep = client.start_bulk_sweep(
            tube, cast("BulkAction", action), where, to=to, reason=reason, rate=rate
        )
    write_sweeps([sweep], output)


@bulk.command("list", epilog=examples("taskraft bulk list -o json"))
@watch_option
@output_option("bulk_sweep_pb2.BulkSweep")
@cluster_options
def list_(*, output: str, target: str | None, timeout: float) -> None:
    """List the bulk sweeps with their progress, newest first."""
    with connect(target, timeout) as client:
        sweeps = client.bulk_sweeps()
    write_sweeps(sweeps, output)


@bulk.command(epilog=examples("taskraft bulk show 17"))
@click.argument("number", type=click.IntRange(min=1))
@watch_option
@output_option("bulk_sweep_pb2.BulkSweep")
@cluster_options
def show(*, number: int, output: str, target: str | None, timeout: float) -> None:
    """Show one bulk sweep, with its refused tasks by reason."""
    from taskraft.cli.terminal_text import terminal_text

    with connect(target, timeout) as client:
        sweep = client.bulk_sweep(number)
    if not write_sweeps([sweep], output):
        return
    for reason, count in sorted(sweep.refused_by_reason.items()):
        click.echo(terminal_text(f"refused: {reason} {count}"))
    if sweep.problem:
        click.echo(terminal_text(f"problem: {sweep.problem}"))


@bulk.command(epilog=examples("taskraft bulk stop 17"))
@click.argument("number", type=click.IntRange(min=1))
@output_option("bulk_sweep_pb2.BulkSweep")
@cluster_options
def stop(*, number: int, output: str, target: str | None, timeout: float) -> None:
    """Stop a bulk sweep; changed tasks stay changed."""
    with connect(target, timeout) as client:
        sweep = client.stop_bulk_sweep(number)
    write_sweeps([sweep], output)


def write_sweeps(sweeps: Sequence[BulkSweep], output: str) -> bool:
    """Write bulk sweeps; return whether they were written as a table for people."""
    from taskraft.cli.output import show_instant, write, write_table
    from taskraft.v1.bulk_sweep_pb2 import BulkSweep, StartBulkSweepRequest

    if write(sweeps, output):
        return False
    rows = [
        (
            sweep.number,
            BulkSweep.State.Name(sweep.state).lower(),
            StartBulkSweepRequest.Action.Name(sweep.action).lower(),
            sweep.tube,
            f"{sweep.ids} ids" if sweep.ids else sweep.filter or "all",
            sweep.changed,
            sweep.refused,
            f"{100 * sweep.position // max(sweep.position_max, 1)} %",
            show_instant(sweep.started_ms),
        )
        for sweep in sweeps
    ]
    write_table(TITLES, rows)
    return True
