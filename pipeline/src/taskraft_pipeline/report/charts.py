"""Draw the charts of a report: six panels with the same colour per tube."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib import dates as mdates
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from taskraft_pipeline.report.tables import duration, headline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from taskraft_pipeline.report.report import DurationStatistics, Report, TimelineBucket

SIZE_INCHES: Final = (13.0, 11.0)
DOTS_PER_INCH: Final = 110
TUBES_MAX: Final = 7
"""Maximum number of tubes with their own colour; the other tubes share the last colour."""
COLOURS: Final = (
    "#2f6fb3", "#e08a1e", "#3a9d6e", "#b5486b", "#7d62b0", "#8a7a3d", "#2f9fb0", "#8b929a",
)  # fmt: skip
"""Colours that red-green colour-blind people can tell apart; the last is for other tubes."""
OTHERS: Final = "others"
DASHES: Final = (0, (4, 2))
INK: Final = "#22272e"
FAINT: Final = "#8b929a"
GRID: Final = "#e4e7eb"
REASONS_MAX: Final = 10


def save(report: Report, place: Path) -> None:
    """Write the charts of a report as PNG."""
    draw(report).savefig(place, dpi=DOTS_PER_INCH, facecolor="white")


def draw(report: Report) -> Figure:
    """Return the charts of a report."""
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12, rect=(0, 0, 1, 0.925))  # type: ignore[union-attr,call-arg] # constrained, as asked for above
    panels = figure.subplots(3, 2)
    colours = colours_of(report)
    figure.text(0.012, 0.978, "taskraft", size=17, weight="bold", color=INK, va="center")
    figure.text(0.1, 0.978, headline(report), size=9.5, color=INK, va="center")
    figure.legend(
        handles=[
            Line2D([], [], color=colour, lw=6, label=name) for name, colour in colours.items()
        ],
        loc="upper left",
        bbox_to_anchor=(0.006, 0.968),
        ncols=len(colours),
        frameon=False,
        fontsize=10,
        handlelength=0.9,
        columnspacing=1.6,
    )
    draw_throughput(panels[0][0], report, colours)
    draw_backlog(panels[0][1], report, colours)
    draw_spreads(panels[1][0], report, colours, "wait")
    draw_spreads(panels[1][1], report, colours, "run")
    draw_failures(panels[2][0], report, colours)
    draw_attempts(panels[2][1], report, colours)
    return figure


def colours_of(report: Report) -> dict[str, str]:
    """Return the colour of each tube with its own colour, busiest tube first.

    A tube that has nothing to draw gets no colour.
    """
    drawn = {moment.tube for moment in report.timeline if is_drawn(moment)}
    names = [tube.name for tube in report.tubes if tube.name in drawn]
    found = dict(zip(names[:TUBES_MAX], COLOURS, strict=False))
    return {**found, OTHERS: COLOURS[-1]} if len(names) > TUBES_MAX else found


def is_drawn(moment: TimelineBucket) -> bool:
    """Return whether a chart shows a mark for a bucket of the timeline."""
    counts = (moment.puts, moment.takes, moment.acks, moment.failures, moment.ready, moment.taken)
    return any(counts)


def style(panel: Axes, title: str, note: str) -> None:
    """Set the title of a panel, and remove decoration."""
    panel.set_title(title, loc="left", size=12, weight="bold", color=INK, pad=20)
    panel.text(0, 1.025, note, transform=panel.transAxes, size=9, color=FAINT)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.spines["bottom"].set_color(FAINT)
    panel.tick_params(colors=INK, labelsize=9, length=0)
    panel.tick_params(which="minor", length=0)
    panel.set_axisbelow(True)


def series(
    report: Report, colours: dict[str, str], attribute: str
) -> tuple[list[float], dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]]:
    """Return the times, and a number of the timeline per tube, 0 for empty buckets."""
    first_ms, last_ms = report.timeline[0].at_ms, report.timeline[-1].at_ms
    size = (last_ms - first_ms) // report.bucket_ms + 1
    found = {name: np.zeros(size) for name in colours}
    for moment in filter(is_drawn, report.timeline):
        place = (moment.at_ms - first_ms) // report.bucket_ms
        found[line_of(moment, colours)][place] += getattr(moment, attribute)
    times = [
        mdates.date2num(datetime.fromtimestamp((first_ms + place * report.bucket_ms) / 1_000, UTC))  # type: ignore[no-untyped-call]  # matplotlib has no types
        for place in range(size)
    ]
    return times, found


def line_of(moment: TimelineBucket, colours: dict[str, str]) -> str:
    """Return the name under which a tube is drawn."""
    return moment.tube if moment.tube in colours else OTHERS


def draw_throughput(panel: Axes, report: Report, colours: dict[str, str]) -> None:
    """Draw acknowledged tasks per second, and puts per second as a line."""
    style(panel, "Throughput", f"acknowledged tasks per second, in steps of {step_of(report)}")
    per_second = 1_000 / report.bucket_ms
    times, acks = series(report, colours, "acks")
    _, puts = series(report, colours, "puts")
    panel.stackplot(
        times,
        [counts * per_second for counts in acks.values()],
        colors=list(colours.values()),
        step="post",
        alpha=0.9,
        lw=0,
    )
    all_puts = np.sum(list(puts.values()), axis=0) * per_second
    all_acks = np.sum(list(acks.values()), axis=0) * per_second
    panel.step(times, all_puts, where="post", color=INK, lw=1.1, ls=DASHES)
    over_time(panel, report)
    # Puts are often much faster than acknowledgements; the line of puts may leave the panel.
    top = 1.3 * (all_acks.max() or all_puts.max())
    panel.set_ylim(0, top)
    most = f", up to {all_puts.max():,.0f} per second" if all_puts.max() > top else ""
    panel.legend(
        handles=[Line2D([], [], color=INK, lw=1.1, ls=DASHES, label=f"put{most}")],
        frameon=False,
        fontsize=9,
        loc="upper right",
    )


def draw_backlog(panel: Axes, report: Report, colours: dict[str, str]) -> None:
    """Draw the number of READY tasks, stacked by tube."""
    anchor = "" if report.is_from_the_start else ", relative to the start of the range"
    style(panel, "Backlog", f"ready tasks{anchor}; line: taken tasks")
    times, ready = series(report, colours, "ready")
    _, taken = series(report, colours, "taken")
    panel.stackplot(
        times,
        [np.cumsum(counts) for counts in ready.values()],
        colors=list(colours.values()),
        alpha=0.9,
        lw=0,
    )
    all_taken = np.cumsum(np.sum(list(taken.values()), axis=0))
    panel.plot(times, all_taken, color=INK, lw=1.1, ls=DASHES)
    over_time(panel, report)
    if report.is_from_the_start:
        panel.set_ylim(bottom=0)


def over_time(panel: Axes, report: Report) -> None:
    """Set a time axis and a count axis."""
    span_ms = report.timeline[-1].at_ms - report.timeline[0].at_ms
    form = "%H:%M:%S" if span_ms < 3_600_000 else "%H:%M" if span_ms < 86_400_000 else "%m-%d"
    locator = mdates.AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]  # matplotlib has no types
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(mdates.DateFormatter(form, tz=UTC))  # type: ignore[no-untyped-call]  # matplotlib has no types
    panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.grid(axis="y", color=GRID, lw=0.8)
    panel.margins(x=0)


def draw_spreads(panel: Axes, report: Report, colours: dict[str, str], phase: str) -> None:
    """Draw the distribution of durations per tube."""
    said = {
        "wait": ("Waiting", "from ready to taken"),
        "run": ("Running", "from taken to the end of the attempt"),
    }
    title, note = said[phase]
    style(panel, title, f"{note}: dot p50, bar p25-p75, line p5-p95, tick p99")
    shown = [
        (tube.name, getattr(tube, phase)) for tube in report.tubes if getattr(tube, phase).count
    ]
    shown = shown[:REASONS_MAX]
    for place, (name, spread) in enumerate(shown):
        draw_spread(panel, place, spread, colours.get(name, COLOURS[-1]))
    named(panel, [name for name, _ in shown])
    if not shown:
        return
    panel.set_xscale("log")
    low, high = panel.get_xlim()
    subs = (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
    panel.xaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    panel.grid(axis="x", color=GRID, lw=0.8)


def draw_spread(panel: Axes, place: int, spread: DurationStatistics, colour: str) -> None:
    """Draw one distribution as a horizontal line; values below 1 ms count as 1 ms."""
    p5, p25, p50, p75, p95, p99 = (max(value, 1.0) for value in spread.quantiles)
    panel.plot([p5, p95], [place, place], color=colour, lw=2, solid_capstyle="butt")
    panel.plot([p25, p75], [place, place], color=colour, lw=11, solid_capstyle="butt")
    panel.plot([p99], [place], "|", color=colour, ms=13, mew=2.2)
    panel.plot([p50], [place], "o", color="white", ms=7, mec=INK, mew=1.3)
    panel.annotate(
        f"p50 {duration(spread.at(0.5))}   p99 {duration(spread.at(0.99))}",
        (0.995, place),
        xycoords=("axes fraction", "data"),
        xytext=(0, 9),
        textcoords="offset points",
        ha="right",
        size=8.5,
        color=INK,
    )


def named(panel: Axes, names: Sequence[str]) -> None:
    """Write names along the vertical axis, the first on top."""
    panel.set_yticks(range(len(names)), [shortened(name) for name in names])
    panel.set_ylim(max(len(names), 3) - 0.4, -0.6)
    if not names:
        panel.set_xticks([])
        panel.text(0.5, 0.5, "none", transform=panel.transAxes, ha="center", color=FAINT, size=11)


def shortened(name: str) -> str:
    """Return a name of at most 22 characters."""
    return name if len(name) <= 22 else f"{name[:21]}…"


def draw_failures(panel: Axes, report: Report, colours: dict[str, str]) -> None:
    """Draw the number of failures by reason and tube."""
    style(panel, "Failures", "failed attempts and burials with a failure, by reason")
    by_reason: dict[str, dict[str, int]] = {}
    for failure in report.failures:
        counts = by_reason.setdefault(failure.reason or failure.kind, {})
        line = failure.tube if failure.tube in colours else OTHERS
        counts[line] = counts.get(line, 0) + failure.count
    ranked = sorted(by_reason, key=lambda reason: -sum(by_reason[reason].values()))[:REASONS_MAX]
    for place, reason in enumerate(ranked):
        left = 0
        for name, colour in colours.items():
            width = by_reason[reason].get(name, 0)
            panel.barh(place, width, left=left, color=colour, height=0.62, alpha=0.9)
            left += width
        panel.annotate(f"{left:,}", (left, place), xytext=(5, 0), textcoords="offset points",
                       va="center", size=9, color=INK)  # fmt: skip
    named(panel, ranked)
    panel.margins(x=0.1)
    if ranked:
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.grid(axis="x", color=GRID, lw=0.8)


def draw_attempts(panel: Axes, report: Report, colours: dict[str, str]) -> None:
    """Draw the number of acknowledged tasks by attempt, on a logarithmic scale."""
    style(panel, "Attempts", "tasks acknowledged at the n-th attempt, by tube (logarithmic)")
    numbers = sorted({one.attempt for one in report.attempts})
    width = 0.8 / max(1, len(colours))
    for place, (name, colour) in enumerate(colours.items()):
        tasks = dict.fromkeys(numbers, 0)
        for one in report.attempts:
            if (one.tube if one.tube in colours else OTHERS) == name:
                tasks[one.attempt] += one.tasks
        left = [n + (place - (len(colours) - 1) / 2) * width for n in range(len(numbers))]
        bars = panel.bar(left, list(tasks.values()), width * 0.92, color=colour, alpha=0.9)
        if len(numbers) * len(colours) <= 24:
            labels = [f"{number:,}" if number else "" for number in tasks.values()]
            panel.bar_label(bars, labels, size=8.5, color=INK, padding=2)
    if not numbers:
        named(panel, [])
        return
    panel.set_xticks(range(len(numbers)), [str(number) for number in numbers])
    panel.set_yscale("log")
    panel.set_ylim(0.8, max(one.tasks for one in report.attempts) * 3)
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.grid(axis="y", color=GRID, lw=0.8)


def step_of(report: Report) -> str:
    """Return the width of a time bucket as text."""
    return duration(report.bucket_ms)
