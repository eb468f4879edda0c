"""The commands ``taskraft ack``, ``release`` and ``bury``: settle leases by their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from taskraft.cli.options import DURATION, cluster_options, connect, examples, output_option

if TYPE_CHECKING:
    from taskraft._settlement import Settlement


@click.command(epilog=examples("taskraft ack 8589934593 --result '{\"sent\": true}'"))
@click.argument("token", type=int, nargs=-1, required=True)
@click.option("--result", help="Result, stored with the task if the task is kept.")
@output_option("task_service_pb2.Settlement")
@cluster_options
def ack(
    *, token: tuple[int, ...], result: str | None, output: str, target: str | None, timeout: float
) -> None:
    """Acknowledge the tasks with these lease tokens."""
    from taskraft import _settlement

    _settle(token, _settlement.ack(result), "acked", output, target, timeout)


@click.command(epilog=examples('taskraft release 8589934593 --delay 30s --reason "SMTP is down"'))
@click.argument("token", type=int, nargs=-1, required=True)
@click.option(
    "--delay", type=DURATION, help="Delay before the tasks are READY; default: the retry policy."
)
@click.option("--reason", help="Reason of the failure.")
@output_option("task_service_pb2.Settlement")
@cluster_options
def release(
    *,
    token: tuple[int, ...],
    delay: float | None,
    reason: str | None,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Release the tasks with these lease tokens."""
    from taskraft import _settlement

    action = _settlement.release(delay, reason=reason)
    _settle(token, action, "released", output, target, timeout)


@click.command(epilog=examples('taskraft bury 8589934593 --reason "no such address"'))
@click.argument("token", type=int, nargs=-1, required=True)
@click.option("--reason", default="", help="Reason of the failure.")
@output_option("task_service_pb2.Settlement")
@cluster_options
def bury(
    *, token: tuple[int, ...], reason: str, output: str, target: str | None, timeout: float
) -> None:
    """Bury the tasks with these lease tokens."""
    from taskraft import _settlement

    _settle(token, _settlement.bury(reason), "buried", output, target, timeout)


_ENDS: Final = {
    "BURIED_OUT": "BURIED, because no attempts are left",
    "FAILED": "removed, or moved to the dead-letter tube, because no attempts are left",
    "DELETED": "removed, because its cancellation was requested",
}
"""Text for the end of a released task without a next attempt, by outcome."""


def _settle(
    tokens: tuple[int, ...],
    action: Settlement,
    done: str,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    from taskraft.cli.output import write
    from taskraft.v1 import task_service_pb2

    with connect(target, timeout) as client:
        given_up = client.settle(tokens, action)
    settled = task_service_pb2.Settlement()
    settled.CopyFrom(action)
    settled.tokens.extend(tokens)
    if not write([settled], output):
        for token in tokens:
            click.echo(f"token {token}  {_ENDS.get(given_up.get(token, ''), done)}")
