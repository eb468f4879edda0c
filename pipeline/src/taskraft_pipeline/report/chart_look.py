"""Colours of charts and pages, for light and dark backgrounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from taskraft_pipeline.report.report import Report, TimelineBucket

TUBES_MAX: Final = 7
"""Maximum number of tubes with their own colour; the other tubes share the last colour."""
COLOURS: Final = (
    "#2f6fb3", "#e08a1e", "#3a9d6e", "#b5486b", "#7d62b0", "#8a7a3d", "#2f9fb0", "#8b929a",
)  # fmt: skip
"""Colours that red-green colour-blind people can tell apart; the last is for other tubes."""
OTHERS: Final = "others"


@dataclass(slots=True, frozen=True)
class Theme:
    """Colours of text, faint text, lines and background."""

    ink: str
    faint: str
    grid: str
    paper: str


LIGHT: Final = Theme("#22272e", "#6b737c", "#e4e7eb", "#ffffff")
DARK: Final = Theme("#e6e9ed", "#9aa3ad", "#333a42", "#1c2127")


@dataclass(slots=True, frozen=True)
class ChartSize:
    """The size of a chart, and how much text and how many bars fit into the chart.

    Attributes:
        inches: width and height.
        line_chars: maximum number of characters in a line of text.
        joint: text between two numbers beside the chart.
        name_chars: maximum number of characters in a name beside the chart.
        ticks: maximum number of labels of a horizontal axis.
        flat_bars: maximum number of bars whose labels are not upright.
        labelled_bars: maximum number of bars with labels.
    """

    inches: tuple[float, float]
    line_chars: int
    joint: str
    name_chars: int
    ticks: int
    flat_bars: int
    labelled_bars: int


WIDE: Final = ChartSize((7.2, 4.0), 100, ", ", 22, ticks=7, flat_bars=6, labelled_bars=24)
NARROW: Final = ChartSize((4.4, 3.7), 46, "\n", 16, ticks=5, flat_bars=3, labelled_bars=20)
"""For phones, on which the text of a wide chart would be too small."""


@dataclass(slots=True, frozen=True)
class ChartLook:
    """Colours and size of the charts of a report.

    Attributes:
        theme: colours of text, lines and background.
        colours: colour of each tube with a colour of its own, and of OTHERS.
        size: size of each chart.
    """

    theme: Theme
    colours: Mapping[str, str]
    size: ChartSize = WIDE


def look_of(report: Report, theme: Theme, size: ChartSize = WIDE) -> ChartLook:
    """Return the colours and the size of the charts of a report."""
    return ChartLook(theme, colours_of(report), size)


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
