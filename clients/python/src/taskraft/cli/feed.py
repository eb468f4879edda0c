"""The command ``taskraft feed``."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

from taskraft.cli.names import TUBE
from taskraft.cli.options import (
    SuggestingGroup,
    check_tubes,
    cluster_options,
    connect,
    examples,
    output_option,
)

if TYPE_CHECKING:
    from taskraft.v1.feed_service_pb2 import ChangeEvent


def cause_of(event: ChangeEvent) -> str:
    """Return the reason and the message of an event, and the other task of a move."""
    target = f"({event.target})" if event.target else ""
    text = ": ".join(part for part in (event.reason, event.message) if part)
    return " ".join(part for part in (text, target) if part)


@click.group(cls=SuggestingGroup, epilog=examples("taskraft feed tail emails"))
def feed() -> None:
    """Follow the change feed."""


@feed.command(
    epilog=examples(
        "taskraft feed tail emails", "taskraft feed tail --from-start --no-follow -o jsonl"
    )
)
@click.argument("tubes", metavar="[TUBE]...", type=TUBE, nargs=-1)
@click.option("--from-start", is_flag=True, help="Start at the oldest event that is kept.")
@click.option(
    "--follow/--no-follow",
    default=True,
    show_default=True,
    help="Wait for new events, or stop at the end.",
)
@click.option(
    "--content",
    "contents",
    multiple=True,
    type=click.Choice(("key", "headers", "payload")),
    help="Part of the task that each event carries while the tube has the task; repeatable.",
)
@click.option("-n", "--limit", type=click.IntRange(1), help="Stop after this number of events.")
@output_option("feed_service_pb2.ChangeEvent", default="jsonl")
@cluster_options
def tail(  # noqa: PLR0913 - one argument for each option
    *,
    tubes: tuple[str, ...],
    from_start: bool,
    follow: bool,
    contents: tuple[str, ...],
    limit: int | None,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Print one line for each task transition, until interrupted.

    With TUBE, only transitions in these tubes. Each must exist; the feed knows no patterns.
    With --no-follow, the command ends after the time --timeout without an answer. With --follow,
    the command opens a broken connection again until it is interrupted.
    """
    from taskraft.cli.output import show_instant, write
    from taskraft.cli.terminal_text import terminal_text
    from taskraft.v1 import feed_service_pb2, task_pb2

    with connect(target, timeout) as client:
        if tubes:
            check_tubes(tubes, (each.name for each in client.list_tubes(tubes)))
        changes = client.changes(tubes, from_start=from_start, follow=follow, contents=contents)
        events = islice(changes, limit)
        if output in ("json", "yaml"):
            write(list(events), output)
            return
        for event in events:
            if write([event], output):
                continue
            kind = feed_service_pb2.ChangeEvent.Kind.Name(event.kind)
            state = task_pb2.Task.State.Name(event.to_state) if event.to_state else "-"
            line = (
                f"{show_instant(event.at_ms):<20}  {event.tube}/{event.task_id}  "
                f"{kind:<16} {state:<8} attempt {event.attempt}  {cause_of(event)}".rstrip()
            )
            click.echo(terminal_text(line))
