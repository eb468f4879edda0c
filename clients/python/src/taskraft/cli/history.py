"""The command ``taskraft history``: the recent past of a tube, as charts in the terminal."""

from __future__ import annotations

import sys
from itertools import pairwise
from math import ceil
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final, NamedTuple

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
from taskraft.cli.output_shape import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from taskraft import Client
    from taskraft.v1.tube_service_pb2 import GetHistoryResponse, TubeHistory

COUNTED: Final = ("put", "take", "ack", "fail", "expired")
"""Fields that count since the previous sample; charts show their rate per second."""
NUMBERS: Final = ("ready", "taken", "buried")
"""Fields that are numbers of tasks at the instant of the sample."""
TIMES: Final = (
    "oldest_ready_age_ms",
    "wait_p50_ms",
    "wait_p95_ms",
    "run_p50_ms",
    "run_p95_ms",
)
"""Fields that are durations in ms."""
FINE_SECONDS: Final = 3_600.0
"""Nodes keep samples each 10 s for this time."""
SECONDS_MAX: Final = 86_400.0
"""Nodes keep samples each 120 s for this time."""
BARS: Final = "▁▂▃▄▅▆▇█"
HEADER: Final = ("", "MAX", "LAST", "CHART")
CHART_COLUMNS: Final = 60
CHART_COLUMNS_MIN: Final = 8
CELL_GAP: Final = 2
"""Columns of the terminal between two cells of a table."""


class Series(NamedTuple):
    """One series of the output: a chart, its largest and its last value."""

    name: str
    values: Sequence[float | None]
    show: Callable[[float], str]


@click.command(epilog=examples("taskraft history emails", "taskraft history --since 24h -o jsonl"))
@click.argument("tube", required=False, type=TUBE)
@click.option(
    "--since",
    type=DURATION,
    default="1h",
    show_default=True,
    help="Length of the past, at most 24h. Up to 1h, samples are 10 s apart, else 120 s.",
)
@output_option(fields("tube", "at_ms", *COUNTED, *NUMBERS, *TIMES))
@cluster_options
def history(
    *, tube: str | None, since: float, output: str, target: str | None, timeout: float
) -> None:
    """Show rates, numbers of tasks, ages and times of TUBE, or of all tubes together.

    A node keeps the samples in memory. Percentiles come from a part of the events of busy tubes.
    The formats for programs have one object for each sample; a value that was not measured is
    null.
    """
    if not 0 < since <= SECONDS_MAX:
        raise click.BadParameter("from more than 0 to 24h", param_hint="--since")
    from taskraft.cli.output import show_duration, show_instant, write_table, write_values

    with connect(target, timeout) as client:
        answer = _samples(client, tube, since)
    found = answer.histories[0] if answer.histories else None
    if write_values(list(_objects(answer, found)) if found else [], output):
        return
    if found is None or not answer.at_ms:
        click.echo("No samples yet: a node takes one each 10 s.")
        return
    at_ms = answer.at_ms
    click.echo(
        f"{tube or 'all tubes'} on {answer.node}: {show_instant(at_ms[0])} to "
        f"{show_instant(at_ms[-1])}, {len(at_ms)} samples, {show_duration(answer.step_ms)} apart"
    )
    lines = [(line.values, (line.name, *_ends(line))) for line in _lines(found, answer.step_ms)]
    columns = chart_columns([cells for _, cells in lines])
    write_table(
        HEADER,
        [(*cells, chart(squeezed(values, columns))) for values, cells in lines],
    )


def _samples(client: Client, tube: str | None, since: float) -> GetHistoryResponse:
    """Read the samples of a tube or of all tubes; a tube without samples has no history."""
    step_seconds = 10 if since <= FINE_SECONDS else 120
    answer = client.history(
        [tube] if tube else [],
        total=tube is None,
        step=step_seconds,
        samples_max=max(int(since // step_seconds), 1),
    )
    if tube and not answer.histories:
        check_tubes([tube], (each.name for each in client.list_tubes([tube])))
    return answer


def _objects(answer: GetHistoryResponse, found: TubeHistory) -> Iterator[dict[str, object]]:
    for place, at_ms in enumerate(answer.at_ms):
        numbers = {name: getattr(found, name)[place] for name in (*COUNTED, *NUMBERS, *TIMES)}
        known = {name: None if number < 0 else number for name, number in numbers.items()}
        yield {"tube": found.tube, "at_ms": at_ms, **known}


def _lines(found: TubeHistory, step_ms: int) -> Iterator[Series]:
    from taskraft.cli.output import show_duration

    def values(name: str, unit: float = 1.0) -> list[float | None]:
        return [None if each < 0 else each / unit for each in getattr(found, name)]

    for name in COUNTED:
        yield Series(f"{name}/s", values(name, step_ms / 1_000), "{:,.1f}".format)
    for name in NUMBERS:
        yield Series(name, values(name), "{:,.0f}".format)
    for name in TIMES:
        label = name.removesuffix("_ms").replace("_", " ")
        yield Series(label, values(name), lambda value: show_duration(int(value)))


def _ends(line: Series) -> tuple[str, str]:
    known = [value for value in line.values if value is not None]
    last = line.values[-1]
    return (
        line.show(max(known)) if known else "-",
        "-" if last is None else line.show(last),
    )


def chart_columns(cells: Sequence[Sequence[str]]) -> int:
    """Return the width of the charts, from 8 to 60, that a terminal has beside the other cells."""
    if not sys.stdout.isatty():
        return CHART_COLUMNS
    widths = (max(map(len, column)) for column in zip(HEADER, *cells, strict=False))
    left = get_terminal_size().columns - sum(width + CELL_GAP for width in widths) - CELL_GAP
    return min(max(left, CHART_COLUMNS_MIN), CHART_COLUMNS)


def squeezed(values: Sequence[float | None], columns: int) -> list[float | None]:
    """Return at most `columns` values: the largest of each run of neighbours, None without any."""
    runs = min(columns, len(values))
    edges = [len(values) * place // runs for place in range(runs + 1)] if runs else [0]
    return [
        max((value for value in values[start:end] if value is not None), default=None)
        for start, end in pairwise(edges)
    ]


def chart(values: Sequence[float | None]) -> str:
    """Return a bar for each value, from 0 to the largest; a space for None."""
    top = max((value for value in values if value is not None), default=0)
    steps = len(BARS) - 1
    return "".join(
        " " if value is None else BARS[ceil(value / top * steps) if top else 0] for value in values
    )
