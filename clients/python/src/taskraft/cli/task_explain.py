"""The command ``taskraft task explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from taskraft.cli.leases import task
from taskraft.cli.options import cluster_options, connect, examples, output_option
from taskraft.cli.output_shape import fields
from taskraft.cli.task_names import task_argument
from taskraft.cli.watch import watch_option

if TYPE_CHECKING:
    from taskraft import Client
    from taskraft.cli.delivery import Delivery

__all__ = ["task"]


@task.command(epilog=examples("taskraft task explain emails 17"))
@task_argument
@watch_option
@output_option(fields("tube", "id", "state", "causes"))
@cluster_options
def explain(*, tube: str, task_id: int, output: str, target: str | None, timeout: float) -> None:
    """Explain why a task of TUBE is not being delivered.

    The command looks at the state of the task, the options and counts of the tube, the sub-queue,
    the group, the dependencies and the waiting consumers.
    """
    from taskraft.cli.output import write_values
    from taskraft.cli.terminal_text import terminal_text

    with connect(target, timeout) as client:
        found = _delivery(client, tube, task_id)
    causes = found.causes()
    value = {
        "tube": tube,
        "id": str(task_id),
        "state": found.task.state,
        "causes": [cause._asdict() for cause in causes],
    }
    if write_values([value], output):
        return
    click.echo(f"{found.task}  {found.task.state}")
    for cause in causes:
        click.echo(f"  {cause.cause:<14} {terminal_text(cause.detail)}")
        click.echo(f"  {'':<14} {terminal_text(cause.advice)}")


def _delivery(client: Client, tube: str, task_id: int) -> Delivery:
    """Read the state that decides about the delivery of a task."""
    from taskraft import errors
    from taskraft.cli.delivery import Delivery

    handle = client.tube(tube)
    found = handle.peek(task_id)
    answer = client.stats([tube])
    spec = found.message.spec
    taken, group = 0, None
    if spec.subqueue and found.state == "READY":
        others = handle.list("state = TAKEN")
        taken = sum(each.message.spec.subqueue == spec.subqueue for each in others)
    if spec.group and found.state == "HELD":
        try:
            group = client.groups.get(spec.group)
        except errors.GroupNotFound:
            group = None  # the group was removed between the two reads
    return Delivery(
        task=found,
        tube=client.list_tubes([tube])[0],
        counts=answer.tubes[0],
        now_ms=answer.now_ms,
        subqueue_taken=taken,
        group=group,
    )
