"""The command ``taskraft failures``: failures of attempts, counted by tube and cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from taskraft.cli.names import TUBE
from taskraft.cli.options import (
    DURATION,
    check_tubes,
    cluster_options,
    connect,
    examples,
    output_option,
)
from taskraft.cli.watch import watch_option

if TYPE_CHECKING:
    from taskraft import Client
    from taskraft.v1.tube_service_pb2 import CountedFailure, ListFailuresResponse

HEADS: Final = ("TUBE", "COUNT", "LAST", "FIRST", "GIVEN_UP", "FAILURE", "EXAMPLE")


@click.command(epilog=examples("taskraft failures emails", "taskraft failures --since 1h -o jsonl"))
@click.argument("tubes", metavar="[TUBE]...", type=TUBE, nargs=-1)
@click.option(
    "--since",
    type=DURATION,
    default="24h",
    show_default=True,
    help="Show the failures that occurred again in this time.",
)
@watch_option
@output_option("tube_service_pb2.CountedFailure")
@cluster_options
def failures(
    *, tubes: tuple[str, ...], since: float, output: str, target: str | None, timeout: float
) -> None:
    """Count failures of attempts in each TUBE, or in all tubes, the most frequent first.

    Failures that differ only in ids and numbers are counted together; further failures of a tube
    with more than 256 different ones are "others". GIVEN_UP counts the tasks that were buried,
    removed or moved to the dead-letter tube. A node counts in memory, since the time that the
    last line tells.
    """
    from taskraft.cli.output import show_instant, write, write_table

    with connect(target, timeout) as client:
        answer = _read(client, tubes)
    first_ms = answer.now_ms - int(since * 1_000)
    found = [each for each in answer.failures if each.last_ms >= first_ms]
    found.sort(key=lambda each: (-each.count, each.tube, each.fingerprint))
    if write(found, output):
        return
    counted = f"counted by {answer.node} since {show_instant(answer.counted_since_ms)}"
    if not found:
        click.echo(f"No failures, {counted}")
        return
    write_table(
        HEADS,
        (
            (
                each.tube,
                each.count,
                show_instant(each.last_ms),
                show_instant(each.first_ms),
                each.given_up,
                _cause(each),
                f"{each.tube}/{each.task_id}",
            )
            for each in found
        ),
    )
    click.echo(counted)


def _read(client: Client, tubes: tuple[str, ...]) -> ListFailuresResponse:
    """Read the counts of some tubes, which must exist, or of all tubes."""
    answer = client.failures(tubes)
    if tubes:
        known = {each.tube for each in answer.failures}
        missing = [name for name in tubes if name not in known]
        if missing:
            check_tubes(missing, (each.name for each in client.list_tubes(missing)))
    return answer


def _cause(failure: CountedFailure) -> str:
    if not failure.fingerprint:
        return "others"
    return ": ".join(part for part in (failure.reason, failure.message) if part)
