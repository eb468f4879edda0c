"""The commands ``taskraft task touch`` and ``taskraft task reject``, for leases by their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from taskraft.cli.interventions import task
from taskraft.cli.options import DURATION, cluster_options, connect, examples, output_option
from taskraft.cli.settle import settle_leases, tokens_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from taskraft import Client
    from taskraft._settlement import Settlement, TouchedLease

__all__ = ["task"]
REJECTED: Final = {
    "BURIED_OUT": "rejected, and BURIED",
    "FAILED": "rejected, and moved to the dead-letter tube",
    "DELETED": "removed, because its cancellation was requested",
}
"""Text for the end of a rejected task, by outcome."""


@task.command(
    epilog=examples(
        "taskraft task touch 8589934593",
        "taskraft task touch 8589934593 --by 10m --progress 0.5 --note 'half sent'",
    )
)
@tokens_argument
@click.option(
    "--by", type=DURATION, help="Added to the leases and their TTR; default: the TTR restarts."
)
@click.option("--progress", type=click.FloatRange(0, 1), help="Progress of the work, from 0 to 1.")
@click.option("--note", default="", help="Note about the progress.")
@output_option("task_service_pb2.TouchedLease")
@cluster_options
def touch(
    *,
    tokens: tuple[int, ...],
    by: float | None,
    progress: float | None,
    note: str,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Extend the leases with these tokens.

    The output tells the new end of each lease, and whether someone has asked the holder to stop. A
    lease without TTR ends with its session.
    """
    from taskraft import _settlement
    from taskraft.cli.output import show_instant, write

    action = _settlement.touch(by, progress=progress, note=note)
    with connect(target, timeout) as client:
        leases = [*_touched(client, tokens, action)]
    if write(leases, output):
        return
    for lease in leases:
        until = show_instant(lease.lease_until_ms) if lease.lease_until_ms else "its session ends"
        stop = ", and the holder is asked to stop" if lease.cancel_requested else ""
        click.echo(f"token {lease.token}  touched, leased until {until}{stop}")


def _touched(client: Client, tokens: tuple[int, ...], action: Settlement) -> Iterator[TouchedLease]:
    """Touch leases, 1 000 in each call, and yield them as they are afterwards."""
    from taskraft._request_batcher import MESSAGE_ITEMS_MAX
    from taskraft.v1 import task_service_pb2

    for first in range(0, len(tokens), MESSAGE_ITEMS_MAX):
        part = tokens[first : first + MESSAGE_ITEMS_MAX]
        for token, found in zip(part, client.settle_and_read(part, action), strict=True):
            yield task_service_pb2.TouchedLease(
                token=token,
                lease_until_ms=found.message.lease_until_ms,
                cancel_requested=found.message.cancel_requested,
            )


@task.command(epilog=examples('taskraft task reject 8589934593 --reason "no such address"'))
@tokens_argument
@click.option("--reason", default="", help="Reason of the failure.")
@output_option("task_service_pb2.Settlement")
@cluster_options
def reject(
    *, tokens: tuple[int, ...], reason: str, output: str, target: str | None, timeout: float
) -> None:
    """Reject the tasks with these lease tokens.

    The tasks get no further attempts: they move to the dead-letter tube of their tube, or are
    BURIED if there is none.
    """
    from taskraft import _settlement

    action = _settlement.reject(reason)
    settle_leases(tokens, action, "rejected", REJECTED, output, target, timeout)
