"""The command ``taskraft top``: a live overview of the cluster and its tubes."""

from __future__ import annotations

import functools
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from taskraft._clock import monotonic
from taskraft.cli.options import (
    DURATION,
    cluster_options,
    connect,
    examples,
    output_option,
)
from taskraft.cli.output_shape import fields
from taskraft.cli.top_view import SORTS, TopView, TubeRow, arranged, pressed, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Group
    from rich.table import Table

    from taskraft import Client, Statistics
    from taskraft.cli.keyboard import Keyboard
    from taskraft.v1.cluster_service_pb2 import GetClusterStateResponse

    Show = Callable[["TopSample", TopView], None]


class TopSample(NamedTuple):
    """The tubes at one refresh."""

    rows: Sequence[TubeRow]
    state: Callable[[], GetClusterStateResponse]
    """Returns the state of the cluster, which only tables need."""


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
    """Show tubes with rates, the leader and the members, until q or Ctrl-C.

    On a terminal, keys sort, filter and pause; "?" shows them. Without a terminal, give --count;
    the tables then follow each other. The other formats have one object for each tube and refresh.
    """
    if not interval > 0:
        raise click.BadParameter("the interval must be longer than 0", param_hint="--interval")
    if count is None and not sys.stdout.isatty():
        raise click.UsageError("The output is not a terminal; give --count.")
    from taskraft.cli.failures import SIGNALED
    from taskraft.cli.keyboard import open_keyboard
    from taskraft.cli.output import TABLES
    from taskraft.cli.stop_signals import StopSignals

    is_screen = sys.stdout.isatty() and output in TABLES
    stop = StopSignals()
    try:
        with (
            stop,
            stop.interrupting(),
            connect(target, timeout) as client,
            open_keyboard(is_wanted=is_screen) as keyboard,
            _open_display(output, is_screen=is_screen) as show,
        ):
            _run(client, keyboard, show, TopView(sort=sort), interval, count)
    except KeyboardInterrupt:
        if stop.number == signal.SIGTERM:
            click.get_current_context().exit(SIGNALED + stop.number)
        raise


@contextmanager
def _open_display(output: str, *, is_screen: bool) -> Iterator[Show]:
    """Yield a function that shows a sample: on the screen, as tables, or as JSON and so on."""
    from rich.console import Console
    from rich.live import Live

    from taskraft.cli.output import PIPE_COLUMNS, write_values

    width = None if sys.stdout.isatty() else PIPE_COLUMNS
    console = Console(highlight=False, width=width)
    with Live(console=console, screen=is_screen, auto_refresh=False) as live:

        def show(sample: TopSample, view: TopView) -> None:
            rows = arranged(sample.rows, view)
            if write_values([row._asdict() for row in rows], output):
                return
            if is_screen:
                live.update(_page(rows, sample.state(), view), refresh=True)
            else:
                console.print(_table(rows, sample.state()))

        yield show


def _run(
    client: Client,
    keyboard: Keyboard,
    show: Show,
    view: TopView,
    interval_seconds: float,
    count: int | None,
) -> None:
    """Show samples of the cluster until a key ends the view, or until `count` samples."""
    before: Statistics | None = None
    done = 0
    while not view.is_ended:
        now = client.stats()
        sample = TopSample(rows_of(before, now), functools.cache(client.cluster_state))
        before, done = now, done + 1
        show(sample, view)
        if done == count:
            return
        view = _wait(keyboard, show, view, sample, interval_seconds)


def _wait(
    keyboard: Keyboard, show: Show, view: TopView, sample: TopSample, interval_seconds: float
) -> TopView:
    """Wait for the next sample, follow the keys meanwhile, and return the view."""
    due = monotonic() + interval_seconds
    while not view.is_ended and (view.is_paused or due > monotonic()):
        left = None if view.is_paused else max(due - monotonic(), 0)
        keys = keyboard.read(left)
        view = functools.reduce(pressed, keys, view)
        if keys:
            show(sample, view)
    return view


def _page(rows: Sequence[TubeRow], state: GetClusterStateResponse, view: TopView) -> Group:
    """Return the content of the screen: the table below the line with the mode."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text(view.status, style="dim"), _table(rows, state))


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
