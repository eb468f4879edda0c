"""Take tasks one by one, run a command for each, and settle the task by the end of the command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import click

from taskraft import _settlement, errors
from taskraft._settlement import RESULT_BYTES_MAX
from taskraft.cli import task_process
from taskraft.cli.stop_signals import StopSignals
from taskraft.cli.terminal_text import terminal_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from taskraft import TakenTask
    from taskraft._settlement import Settlement
    from taskraft._sync_tube import Tube
    from taskraft._take import TakeOptions
    from taskraft.cli.task_process import CommandEnd

TEMPORARY_FAILURE: Final = 75
"""Exit status with which a command gives its task back uncounted (EX_TEMPFAIL of sysexits.h)."""
TEMPORARY_DELAY_SECONDS: Final = 1
"""Delay of such a task, in seconds, so that no idle consumer takes the task again at once."""


class ExecPlan(NamedTuple):
    """What `taskraft take --exec` runs, and for how many tasks."""

    command: tuple[str, ...]
    tasks_max: int | None
    """Maximum number of tasks; None: no limit."""
    wait_seconds: float | None
    """Maximum wait for each task; None: no limit."""
    take: TakeOptions
    stores_result: bool
    """Store the standard output of the command as the result of the task."""
    grace_seconds: float


class ExecEnd(NamedTuple):
    """How many tasks were taken and acknowledged, and the signal that ended the run."""

    taken: int
    acknowledged: int
    signal: int
    """Number of the signal; 0: none."""


def run_tasks(tube: Tube, plan: ExecPlan) -> ExecEnd:
    """Run the command for tasks of a tube until there is no task in time, or until a signal.

    Raises:
        OSError: the command cannot be started; its task was released uncounted.
        TaskraftError: a take or a settlement failed.
    """
    taken = acknowledged = 0
    with StopSignals() as stop:
        for task in _tasks(tube, plan, stop):
            taken += 1
            acknowledged += _run(task, plan, stop)
    return ExecEnd(taken, acknowledged, stop.number)


def _tasks(tube: Tube, plan: ExecPlan, stop: StopSignals) -> Iterator[TakenTask]:
    """Yield tasks, each when the one before is settled."""
    options = plan.take
    taken = 0
    while plan.tasks_max is None or taken < plan.tasks_max:
        try:
            with stop.interrupting():
                task = tube.take(wait=plan.wait_seconds, **options)
        except KeyboardInterrupt:
            return
        if task is None:
            return
        taken += 1
        yield task


def _run(task: TakenTask, plan: ExecPlan, stop: StopSignals) -> bool:
    """Run the command for a task, and settle the task; return whether it was acknowledged."""
    try:
        with task.process():
            end = task_process.run_command(
                plan.command,
                task,
                stop,
                captures_output=plan.stores_result,
                grace_seconds=plan.grace_seconds,
            )
    except BaseException:
        task.settle(_settlement.release(0, uncounted=True))
        raise
    action, done = settlement_of(end, stores_result=plan.stores_result)
    try:
        task.settle(action)
    except errors.LeaseStale:
        click.echo(f"{task}  not settled, because the lease has ended", err=True)
        return False
    click.echo(f"{task}  {terminal_text(done)}", err=True)
    return action.HasField("ack")


def settlement_of(end: CommandEnd, *, stores_result: bool) -> tuple[Settlement, str]:
    """Return the settlement for the end of a command, and the text of this settlement."""
    if end.cause:
        return _settlement.release(0, uncounted=True), f"released: {end.cause}"
    if end.status == TEMPORARY_FAILURE:
        release = _settlement.release(TEMPORARY_DELAY_SECONDS, uncounted=True)
        return release, f"released uncounted: {end.reason}"
    if end.status:
        return _settlement.release(reason=end.reason), f"failed: {end.reason}"
    if not stores_result:
        return _settlement.ack(), "acked"
    if len(end.output) > RESULT_BYTES_MAX:
        reason = f"the output has more than {RESULT_BYTES_MAX} bytes"
        return _settlement.reject(reason), f"rejected: {reason}"
    return _settlement.ack(end.output), "acked"
