"""The command ``taskraft take``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from taskraft.cli.exec_options import TakeCommand, exec_options
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
    from taskraft._sync_tube import Tube
    from taskraft._take import TakeOptions
    from taskraft.cli.exec_options import ExecOptions

TIMEOUT_CODE = 6
NO_TASK = "no task in {tube} within {wait:g}s"
PROMPT = "Ack it? [Y/n/r(elease)/b(ury)]"


@click.command(
    cls=TakeCommand,
    epilog=examples(
        "taskraft take emails",
        "taskraft take emails --max 100 --wait 0s --ack -o jsonl",
        "taskraft take emails --max 100 --wait 0s --exec -- ./send-mail",
        "taskraft take emails --forever --exec -- ./send-mail --from noreply@b.c",
        "taskraft take emails --ack --raw",
    ),
)
@click.argument("tube", type=TUBE)
@click.option(
    "--wait", type=DURATION, default="10s", show_default=True, help="Maximum wait for a task."
)
@click.option(
    "-n", "--max", "tasks_max", type=click.IntRange(1), default=1, help="Maximum number of tasks."
)
@click.option(
    "--ack/--keep", "is_ack", default=None, help="Acknowledge at once, or keep the leases."
)
@click.option("--ttr", type=DURATION, help="TTR of the leases.")
@click.option(
    "--yielding",
    is_flag=True,
    help="Let consumers that wait on TUBE without this option take its tasks first.",
)
@exec_options
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
    yielding: bool,
    execution: ExecOptions | None,
    raw: bool,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Take tasks from TUBE and settle them.

    On a terminal, the command asks what to do with each task; elsewhere give --ack or --keep. A
    kept task stays TAKEN for its TTR (60 s if it has none) and is settled by its token. The exit
    code is 6 if no task arrived in time.

    With --exec, COMMAND runs for each task, one at a time. Its standard input is the payload. It
    has the variables TASKRAFT_TUBE, TASKRAFT_TASK_ID, TASKRAFT_ATTEMPT, and TASKRAFT_HEADER_NAME
    for each header. Exit status 0 acknowledges the task. 75 releases it for a second, uncounted.
    Another status is a failed attempt: the retry policy decides, and the reason has the status and
    the last line of the standard error. The lease is renewed meanwhile. When the lease is lost or
    this command is stopped, COMMAND gets SIGTERM, then SIGKILL, and the task is released
    uncounted. The exit code is 1 if a task was not acknowledged; with --forever it is 0.
    """
    given: TakeOptions = {"yielding": yielding}
    if ttr is not None:
        given["ttr"] = ttr
    if execution is not None:
        with connect(target, timeout) as client:
            code = _exec(client.tube(tube), execution, wait, tasks_max, given)
        click.get_current_context().exit(code)
    if is_ack is None and not sys.stdin.isatty():
        raise click.UsageError("The input is not a terminal; give --ack or --keep.")
    with connect(target, timeout) as client:
        handle = client.tube(tube)
        given["session"] = False
        tasks = handle.take_many(tasks_max, wait=wait, **given)
        if not tasks:
            click.echo(NO_TASK.format(tube=tube, wait=wait), err=True)
            click.get_current_context().exit(TIMEOUT_CODE)
        _show(tasks, output, raw=raw)
        for task in tasks:
            _settle(task, is_ack=is_ack)


def _exec(tube: Tube, options: ExecOptions, wait: float, tasks_max: int, given: TakeOptions) -> int:
    """Run a command for tasks, and return the exit code."""
    from taskraft.cli.failures import FAILED, SIGNALED
    from taskraft.cli.take_exec import ExecPlan, run_tasks

    plan = ExecPlan(
        options.command,
        None if options.forever else tasks_max,
        None if options.forever else wait,
        given,
        options.result,
        options.grace,
    )
    end = run_tasks(tube, plan)
    if options.forever:
        return 0
    if end.signal:
        return SIGNALED + end.signal
    if not end.taken:
        click.echo(NO_TASK.format(tube=tube.name, wait=wait), err=True)
        return TIMEOUT_CODE
    return FAILED if end.acknowledged < end.taken else 0


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
