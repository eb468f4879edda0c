"""Draw the charts of a report: one picture for each chart and theme, one colour for each tube."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from textwrap import wrap
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib import dates as mdates
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from taskraft_pipeline.report.chart_look import COLOURS, OTHERS, is_drawn
from taskraft_pipeline.report.chart_ticks import duration_ticks, time_text
from taskraft_pipeline.report.tables import attempt_text, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes

    from taskraft_pipeline.report.chart_look import ChartLook
    from taskraft_pipeline.report.report import DurationStatistics, Report, TimelineBucket

DOTS_PER_INCH: Final = 130
DASHES: Final = (0, (4, 2))
LEGEND: Final = "dot p50, bar p25-p75, line p5-p95, tick p99"
ROWS_MAX: Final = 10
"""Maximum number of tubes or reasons in a chart with one row for each."""


def draw(report: Report, look: ChartLook) -> Mapping[str, bytes]:
    """Return the charts of a report as PNG, by title."""
    return {title: chart(report, look, title) for title in CHARTS}


def chart(report: Report, look: ChartLook, title: str) -> bytes:
    """Return one of CHARTS as PNG."""
    written = io.BytesIO()
    paper = look.theme.paper
    figure_of(report, look, title).savefig(
        written, format="png", dpi=DOTS_PER_INCH, facecolor=paper
    )
    return written.getvalue()


def figure_of(report: Report, look: ChartLook, title: str) -> Figure:
    """Draw one of CHARTS."""
    figure = Figure(figsize=look.size.inches, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.14, h_pad=0.14)  # type: ignore[union-attr,call-arg] # constrained, as asked for above
    panel = figure.subplots()
    panel.set_facecolor(look.theme.paper)
    CHARTS[title](panel, report, look)
    return figure


def style(panel: Axes, look: ChartLook, title: str, note: str) -> None:
    """Set the title of a panel, and remove decoration."""
    lines = wrap(note, look.size.line_chars)
    pad = 8 + 12 * len(lines)
    panel.set_title(title, loc="left", size=12, weight="bold", color=look.theme.ink, pad=pad)
    panel.annotate("\n".join(lines), (0, 1), xytext=(0, 7), xycoords="axes fraction",
                   textcoords="offset points", size=9, color=look.theme.faint)  # fmt: skip
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.spines["bottom"].set_color(look.theme.faint)
    panel.tick_params(colors=look.theme.ink, labelsize=9, length=0)
    panel.tick_params(which="minor", length=0)
    panel.tick_params(axis="x", pad=7)
    panel.set_axisbelow(True)


def series(
    report: Report, look: ChartLook, attribute: str
) -> tuple[list[float], dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]]:
    """Return the times, and a number of the timeline per tube, 0 for empty buckets."""
    first_ms, last_ms = report.timeline[0].at_ms, report.timeline[-1].at_ms
    size = (last_ms - first_ms) // report.bucket_ms + 1
    found = {name: np.zeros(size) for name in look.colours}
    for moment in filter(is_drawn, report.timeline):
        place = (moment.at_ms - first_ms) // report.bucket_ms
        found[line_of(moment, look)][place] += getattr(moment, attribute)
    times = [
        mdates.date2num(datetime.fromtimestamp((first_ms + place * report.bucket_ms) / 1_000, UTC))  # type: ignore[no-untyped-call]  # matplotlib has no types
        for place in range(size)
    ]
    return times, found


def line_of(moment: TimelineBucket, look: ChartLook) -> str:
    """Return the name under which a tube is drawn."""
    return moment.tube if moment.tube in look.colours else OTHERS


def draw_throughput(panel: Axes, report: Report, look: ChartLook) -> None:
    """Draw acknowledged tasks per second, and puts per second as a line."""
    per_second = 1_000 / report.bucket_ms
    times, acks = series(report, look, "acks")
    _, puts = series(report, look, "puts")
    all_puts = np.sum(list(puts.values()), axis=0) * per_second
    all_acks = np.sum(list(acks.values()), axis=0) * per_second
    # Puts are often much faster than acknowledgements; the line of puts may leave the panel.
    top = 1.3 * (all_acks.max() or all_puts.max())
    most = f", up to {all_puts.max():,.0f}" if all_puts.max() > top else ""
    note = f"acknowledged per second, in steps of {step_of(report)}; line: puts per second{most}"
    style(panel, look, "Throughput", note)
    panel.stackplot(
        times,
        [counts * per_second for counts in acks.values()],
        colors=list(look.colours.values()),
        step="post",
        alpha=0.9,
        lw=0,
    )
    panel.step(times, all_puts, where="post", color=look.theme.ink, lw=1.1, ls=DASHES)
    over_time(panel, report, look)
    panel.set_ylim(0, top)


def draw_backlog(panel: Axes, report: Report, look: ChartLook) -> None:
    """Draw the number of READY tasks, stacked by tube."""
    anchor = "" if report.is_from_the_start else ", relative to the start of the range"
    style(panel, look, "Backlog", f"ready tasks{anchor}; line: taken tasks")
    times, ready = series(report, look, "ready")
    _, taken = series(report, look, "taken")
    panel.stackplot(
        times,
        [np.cumsum(counts) for counts in ready.values()],
        colors=list(look.colours.values()),
        alpha=0.9,
        lw=0,
    )
    all_taken = np.cumsum(np.sum(list(taken.values()), axis=0))
    panel.plot(times, all_taken, color=look.theme.ink, lw=1.1, ls=DASHES)
    over_time(panel, report, look)
    if report.is_from_the_start:
        panel.set_ylim(bottom=0)


def over_time(panel: Axes, report: Report, look: ChartLook) -> None:
    """Set a time axis and a count axis."""
    span_ms = report.timeline[-1].at_ms - report.timeline[0].at_ms
    locator = mdates.AutoDateLocator(minticks=3, maxticks=look.size.ticks)  # type: ignore[no-untyped-call]  # matplotlib has no types
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(
        FuncFormatter(lambda day, _: time_text(mdates.num2date(day, UTC), span_ms))  # type: ignore[no-untyped-call]  # matplotlib has no types
    )
    panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.grid(axis="y", color=look.theme.grid, lw=0.8)
    panel.margins(x=0)


def draw_waits(panel: Axes, report: Report, look: ChartLook) -> None:
    """Draw the distribution of waits per tube."""
    style(panel, look, "Waiting", f"from ready to taken: {LEGEND}")
    draw_spreads(panel, [(tube.name, tube.wait) for tube in report.tubes], look)


def draw_runs(panel: Axes, report: Report, look: ChartLook) -> None:
    """Draw the distribution of runs per tube."""
    style(panel, look, "Running", f"from the take to the end of the attempt: {LEGEND}")
    draw_spreads(panel, [(tube.name, tube.run) for tube in report.tubes], look)


def draw_spreads(
    panel: Axes, spreads: Sequence[tuple[str, DurationStatistics]], look: ChartLook
) -> None:
    """Draw the distribution of durations per tube."""
    shown = [(name, spread) for name, spread in spreads if spread.count][:ROWS_MAX]
    for place, (name, spread) in enumerate(shown):
        draw_spread(panel, place, spread, look, look.colours.get(name, COLOURS[-1]))
    named(panel, look, [name for name, _ in shown])
    if not shown:
        return
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(FixedLocator(duration_ticks(*panel.get_xlim(), look.size.ticks)))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    panel.grid(axis="x", color=look.theme.grid, lw=0.8)


def draw_spread(
    panel: Axes, place: int, spread: DurationStatistics, look: ChartLook, colour: str
) -> None:
    """Draw one distribution as a horizontal line; values below 1 ms count as 1 ms."""
    p5, p25, p50, p75, p95, p99 = (max(value, 1.0) for value in spread.quantiles)
    panel.plot([p5, p95], [place, place], color=colour, lw=2, solid_capstyle="butt")
    panel.plot([p25, p75], [place, place], color=colour, lw=11, solid_capstyle="butt")
    panel.plot([p99], [place], "|", color=colour, ms=13, mew=2.2)
    panel.plot([p50], [place], "o", color=look.theme.paper, ms=7, mec=look.theme.ink, mew=1.3)
    panel.annotate(
        f"p50 {duration(spread.at(0.5))}{look.size.joint}p99 {duration(spread.at(0.99))}",
        (1.01, place),
        xycoords=("axes fraction", "data"),
        annotation_clip=False,
        va="center",
        size=8.5,
        color=look.theme.ink,
    )


def named(panel: Axes, look: ChartLook, names: Sequence[str]) -> None:
    """Write names along the vertical axis, the first on top."""
    shown = [shortened(name, look.size.name_chars) for name in names]
    panel.set_yticks(range(len(names)), shown)
    panel.set_ylim(max(len(names), 3) - 0.4, -0.6)
    if not names:
        panel.set_xticks([])
        panel.text(
            0.5,
            0.5,
            "none",
            transform=panel.transAxes,
            ha="center",
            color=look.theme.faint,
            size=11,
        )


def shortened(name: str, chars_max: int) -> str:
    """Return a name of at most ``chars_max`` characters."""
    return name if len(name) <= chars_max else f"{name[: chars_max - 1]}…"


def draw_failures(panel: Axes, report: Report, look: ChartLook) -> None:
    """Draw the number of failures by reason and tube."""
    style(panel, look, "Failures", "failed attempts and burials with a failure, by reason")
    by_reason: dict[str, dict[str, int]] = {}
    for failure in report.failures:
        counts = by_reason.setdefault(failure.reason or failure.kind, {})
        line = failure.tube if failure.tube in look.colours else OTHERS
        counts[line] = counts.get(line, 0) + failure.count
    ranked = sorted(by_reason, key=lambda reason: -sum(by_reason[reason].values()))[:ROWS_MAX]
    for place, reason in enumerate(ranked):
        left = 0
        for name, colour in look.colours.items():
            width = by_reason[reason].get(name, 0)
            panel.barh(place, width, left=left, color=colour, height=0.62, alpha=0.9)
            left += width
        panel.annotate(f"{left:,}", (left, place), xytext=(5, 0), textcoords="offset points",
                       va="center", size=9, color=look.theme.ink)  # fmt: skip
    named(panel, look, ranked)
    panel.margins(x=0.1)
    if ranked:
        panel.xaxis.set_major_locator(MaxNLocator(look.size.ticks - 1, integer=True))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.grid(axis="x", color=look.theme.grid, lw=0.8)


def draw_attempts(panel: Axes, report: Report, look: ChartLook) -> None:
    """Draw the number of acknowledged tasks by attempt, on a logarithmic scale."""
    style(panel, look, "Attempts", "tasks acknowledged at the n-th attempt, by tube (logarithmic)")
    numbers = sorted({one.attempt for one in report.attempts})
    width = 0.8 / max(1, len(look.colours))
    bars_drawn = len(numbers) * len(look.colours)
    is_upright = bars_drawn > look.size.flat_bars
    for place, (name, colour) in enumerate(look.colours.items()):
        tasks = dict.fromkeys(numbers, 0)
        for one in report.attempts:
            if (one.tube if one.tube in look.colours else OTHERS) == name:
                tasks[one.attempt] += one.tasks
        left = [n + (place - (len(look.colours) - 1) / 2) * width for n in range(len(numbers))]
        bars = panel.bar(left, list(tasks.values()), width * 0.92, color=colour, alpha=0.9)
        if bars_drawn <= look.size.labelled_bars:
            labels = [f"{number:,}" if number else "" for number in tasks.values()]
            panel.bar_label(bars, labels, size=8.5, color=look.theme.ink, padding=3,
                            rotation=90 if is_upright else 0)  # fmt: skip
    if not numbers:
        named(panel, look, [])
        return
    panel.set_xticks(range(len(numbers)), [*map(attempt_text, numbers)])
    panel.set_yscale("log")
    panel.set_ylim(0.8, max(one.tasks for one in report.attempts) * (20 if is_upright else 3))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.grid(axis="y", color=look.theme.grid, lw=0.8)


def step_of(report: Report) -> str:
    """Return the width of a time bucket as text."""
    return duration(report.bucket_ms)


CHARTS: Final[Mapping[str, Callable[[Axes, Report, ChartLook], None]]] = {
    "Throughput": draw_throughput,
    "Backlog": draw_backlog,
    "Waiting": draw_waits,
    "Running": draw_runs,
    "Failures": draw_failures,
    "Attempts": draw_attempts,
}
"""Function that draws each chart, by title."""
