"""The command ``taskraft take``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from taskraft.cli.names import TUBE
from taskraft.cli.options import (
    DURATION,
    cluster_options,
    connect,
    examples,
    output_option,
    raw_option,
)

if TYPE_CHECKING:
    from taskraft import TakenTask

TIMEOUT_CODE = 6
PROMPT = "Ack it? [Y/n/r(elease)/b(ury)]"


@click.command(
    epilog=examples(
        "taskraft take emails",
        "taskraft take emails --max 100 --wait 0s --ack -o jsonl",
        "taskraft take emails --ack --raw",
    )
)
@click.argument("tube", type=TUBE)
@click.option(
    "--wait", type=DURATION, default="10s", show_default=True, help="Maximum wait for a task."
)
@click.option(
    "--max", "tasks_max", type=click.IntRange(1, 1_000), default=1, help="Maximum number of tasks."
)
@click.option(
    "--ack/--keep", "is_ack", default=None, help="Acknowledge at once, or keep the leases."
)
@click.option("--ttr", type=DURATION, help="TTR of the leases.")
@raw_option
@output_option("task_pb2.Task")
@cluster_options
def take(  # noqa: PLR0913 - one argument for each option
    *,
    tube: str,
    wait: float,
    tasks_max: int,
    is_ack: bool | None,
    ttr: float | None,
    raw: bool,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Take tasks from TUBE and settle them.

    On a terminal, the command asks what to do with each task; elsewhere give --ack or --keep. A
    kept task stays TAKEN for its TTR (60 s if it has none) and is settled by its token. The exit
    code is 6 if no task arrived in time.
    """
    if is_ack is None and not sys.stdin.isatty():
        raise click.UsageError("The input is not a terminal; give --ack or --keep.")
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        if ttr is None:
            tasks = handle.take_many(tasks_max, wait=wait, session=False)
        else:
            tasks = handle.take_many(tasks_max, wait=wait, session=False, ttr=ttr)
        if not tasks:
            click.echo(f"no task in {tube} within {wait:g}s", err=True)
            click.get_current_context().exit(TIMEOUT_CODE)
        _show(tasks, output, raw=raw)
        for task in tasks:
            _settle(task, is_ack=is_ack)


def _show(tasks: list[TakenTask], output: str, *, raw: bool) -> None:
    from taskraft.cli.output import show_duration, show_payload, write, write_payloads

    if raw:
        write_payloads(tasks)
        return
    if write([task.message for task in tasks], output):
        return
    for task in tasks:
        left_ms = task.lease_until_ms - task.message.since_ms
        lease = f"lease {show_duration(left_ms)}" if task.lease_until_ms else "lease without TTR"
        click.echo(f"{task}  {show_payload(task.payload)}   {lease}   token {task.token}")


def _settle(task: TakenTask, *, is_ack: bool | None) -> None:
    """Settle a task as requested, or ask."""
    if is_ack is not None:
        if is_ack:
            task.ack()
        return
    answer = click.prompt(
        PROMPT,
        default="y",
        show_default=False,
        show_choices=False,
        err=True,
        type=click.Choice(["y", "n", "r", "b"], case_sensitive=False),
        prompt_suffix=" ",
    )
    match answer:
        case "y":
            task.ack()
            click.echo(f"{task}  acked", err=True)
        case "r":
            task.release()
            click.echo(f"{task}  released", err=True)
        case "b":
            task.bury("by hand")
            click.echo(f"{task}  buried", err=True)
        case _:
            click.echo(
                f"{task}  stays taken; acknowledge it with: taskraft ack {task.token}", err=True
            )
