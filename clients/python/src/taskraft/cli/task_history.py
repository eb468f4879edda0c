"""The command ``taskraft task history``: the transitions of one task, from the change feed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from taskraft.cli.options import cluster_options, connect, examples, output_option
from taskraft.cli.task_explain import task
from taskraft.cli.task_names import task_argument

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from taskraft.v1.feed_service_pb2 import ChangeEvent, GetTaskEventsResponse

__all__ = ["task"]


@task.command(
    epilog=examples(
        "taskraft task history emails 17", "taskraft task history emails 17 -n 10 -o jsonl"
    )
)
@task_argument
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 100),
    default=100,
    show_default=True,
    help="Number of transitions, the newest ones.",
)
@click.option(
    "--before",
    type=click.DateTime(),
    help="For a task that was removed: search older transitions than this time, in UTC.",
)
@output_option("feed_service_pb2.ChangeEvent")
@cluster_options
def history(
    *,
    tube: str,
    task_id: int,
    limit: int,
    before: datetime | None,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Show the transitions of a task of TUBE, with causes.

    A task that was removed is found while its last event is among the 64 000 newest ones of its
    partition of the feed. Changes of a task without a change of state are not shown.
    """
    from datetime import UTC

    from taskraft.cli.output import show_instant, write, write_table

    before_ms = int(before.replace(tzinfo=UTC).timestamp() * 1_000) if before else 0
    with connect(target, timeout) as client:
        answer = client.tube(tube).events(task_id, events_max=limit, before_ms=before_ms)
    events = list(reversed(answer.events))
    if write(events, output):
        return
    if not answer.complete:
        click.echo(_beginning(answer, limit, show_instant(answer.begins_ms)))
    write_table(("AT", "EVENT", "STATE", "AFTER", "ATTEMPT", "SESSION", "CAUSE"), _rows(events))


def _beginning(answer: GetTaskEventsResponse, limit: int, begins: str) -> str:
    """Return why the first transitions are missing."""
    if len(answer.events) == limit:
        return f"The newest {limit} transitions; there may be older ones."
    if not answer.begins_ms:
        return "The feed has no events of this task."
    return f"The put is not among the events that were kept; the feed begins at {begins}."


def _rows(events: list[ChangeEvent]) -> Iterator[tuple[object, ...]]:
    from taskraft.cli.feed import cause_of
    from taskraft.cli.output import show_duration, show_instant
    from taskraft.v1 import feed_service_pb2, task_pb2

    state = task_pb2.Task.State.Name
    for event in events:
        was = state(event.from_state) if event.from_state else "-"
        yield (
            show_instant(event.at_ms),
            feed_service_pb2.ChangeEvent.Kind.Name(event.kind),
            f"{was} > {state(event.to_state) if event.to_state else '-'}",
            show_duration(max(event.at_ms - event.since_ms, 0)) if event.from_state else "-",
            event.attempt,
            event.session or "-",
            cause_of(event) or "-",
        )
