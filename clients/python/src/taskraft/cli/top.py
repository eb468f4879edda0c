"""The command ``taskraft top``: a live overview of the cluster and its tubes."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

import click

from taskraft.cli.options import (
    DURATION,
    cluster_options,
    connect,
    examples,
    output_option,
)
from taskraft.cli.output_shape import fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from taskraft import Statistics, TubeStatistics
    from taskraft.v1.cluster_service_pb2 import GetClusterStateResponse

SORTS = ("name", "ready", "taken", "buried", "put", "ack", "age")


class TubeRow(NamedTuple):
    """One tube: counts, and rates per second since the previous refresh."""

    name: str
    ready: int
    taken: int
    buried: int
    put: float
    take: float
    ack: float
    fail: float
    age_ms: int
    waiting: int


@click.command(epilog=examples("taskraft top", "taskraft top --sort ready --count 2"))
@click.option(
    "--interval", type=DURATION, default="1s", show_default=True, help="Refresh interval."
)
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="name",
    show_default=True,
    help="Order of the tubes.",
)
@click.option("--count", type=click.IntRange(1), help="End after this number of refreshes.")
@output_option(fields(*TubeRow._fields))
@cluster_options
def top(
    *,
    interval: float,
    sort: str,
    count: int | None,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Show tubes with rates, the leader and the members, until Ctrl-C.

    Without a terminal, give --count; the tables then follow each other. The other formats have one
    object for each tube and refresh.
    """
    if not interval > 0:
        raise click.BadParameter("the interval must be longer than 0", param_hint="--interval")
    if count is None and not sys.stdout.isatty():
        raise click.UsageError("The output is not a terminal; give --count.")
    from rich.console import Console
    from rich.live import Live

    from taskraft.cli.output import PIPE_COLUMNS, TABLES, write_values

    width = None if sys.stdout.isatty() else PIPE_COLUMNS
    console, pause = Console(highlight=False, width=width), threading.Event()
    before: Statistics | None = None
    done = 0
    with (
        connect(target, timeout) as client,
        Live(
            console=console,
            screen=console.is_terminal and output in TABLES,
            auto_refresh=False,
        ) as live,
    ):
        while count is None or done < count:
            if done:
                pause.wait(interval)
            now = client.stats()
            rows = rows_of(before, now, sort)
            before, done = now, done + 1
            if write_values([row._asdict() for row in rows], output):
                continue
            table = _table(rows, client.cluster_state())
            if console.is_terminal:
                live.update(table, refresh=True)
            else:
                console.print(table)


def rows_of(before: Statistics | None, now: Statistics, sort: str) -> list[TubeRow]:
    """Return one row per tube; rates are 0 at the first refresh."""
    earlier = {each.tube: each for each in before.tubes} if before else {}
    seconds = max(now.now_ms - before.now_ms, 1) / 1_000 if before else 1.0

    def rate(each: TubeStatistics, call: str) -> float:
        known = earlier.get(each.tube)
        if known is None:
            return 0.0
        more: int = getattr(each.calls, call) - getattr(known.calls, call)
        return max(more, 0) / seconds

    rows = [
        TubeRow(
            name=each.tube,
            ready=each.tasks.ready,
            taken=each.tasks.taken,
            buried=each.tasks.buried,
            put=rate(each, "put"),
            take=rate(each, "take"),
            ack=rate(each, "ack"),
            fail=rate(each, "fail"),
            age_ms=max(now.now_ms - each.oldest_ready_ms, 0) if each.oldest_ready_ms else 0,
            waiting=each.waiting,
        )
        for each in now.tubes
    ]
    if sort == "name":
        return sorted(rows)
    field = "age_ms" if sort == "age" else sort
    return sorted(rows, key=lambda row: getattr(row, field), reverse=True)


def _table(rows: Sequence[TubeRow], state: GetClusterStateResponse) -> Table:
    from rich.table import Table

    from taskraft.cli.output import show_duration

    active = sum(each.leader or each.active for each in state.members)
    title = (
        f"leader {state.leader or 'none'}, term {state.state.term}, "
        f"{active} of {len(state.members)} members active"
    )
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("TUBE")
    for name in (
        "READY",
        "TAKEN",
        "BURIED",
        "PUT/S",
        "TAKE/S",
        "ACK/S",
        "FAIL/S",
        "OLDEST",
        "WAITING",
    ):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.name,
            *(str(each) for each in (row.ready, row.taken, row.buried)),
            *(f"{each:,.0f}" for each in (row.put, row.take, row.ack, row.fail)),
            show_duration(row.age_ms) if row.age_ms else "-",
            str(row.waiting),
            style="red" if row.buried else "",
        )
    return table
