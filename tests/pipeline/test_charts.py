"""The charts and cards of a report are laid out without overprints at each width."""

from dataclasses import replace
from itertools import combinations

import pytest
from matplotlib.text import Text

from taskraft_pipeline.report.chart_look import LIGHT, NARROW, WIDE, look_of
from taskraft_pipeline.report.chart_ticks import duration_ticks
from taskraft_pipeline.report.charts import CHARTS, figure_of
from taskraft_pipeline.report.page import cards
from taskraft_pipeline.report.report import AttemptCount
from taskraft_pipeline.report.tables import duration
from tests.pipeline.history import EPOCH_MS
from tests.pipeline.test_report import plain_report


@pytest.fixture
def report(events):
    return plain_report(events)


@pytest.fixture
def busy(report):
    """Return a report with numbers of five digits and durations from 1 ms to half an hour."""
    longest = 2_000_000.0
    spread = replace(report.tubes[0].wait, quantiles=[0, 0, 1, 60_000, 900_000, longest])
    tubes = [
        replace(report.tubes[0], name=name, wait=spread, run=spread)
        for name in ("mail", "thumbnails", "search", "billing", "a tube with a very long name")
    ]
    attempts = [
        AttemptCount(tube.name, attempt, 28_797 // attempt**3)
        for tube in tubes
        for attempt in range(1, 5)
    ]
    timeline = [
        replace(report.timeline[0], tube=tube.name, at_ms=at_ms, puts=27_000, acks=27_000)
        for tube in tubes
        for at_ms in range(EPOCH_MS, EPOCH_MS + 86_400_000, 900_000)
    ]
    failures = [replace(report.failures[0], tube=tube.name, count=9_999) for tube in tubes]
    return replace(
        report,
        tubes=tubes,
        attempts=attempts,
        timeline=timeline,
        failures=failures,
        bucket_ms=900_000,
    )


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("title", CHARTS)
def test_no_text_of_a_chart_overprints_another_or_leaves_it(busy, title, size):
    figure = figure_of(busy, look_of(busy, LIGHT, size), title)
    figure.draw_without_rendering()
    (panel,) = figure.axes
    beyond = {
        tick.label1
        for axis in (panel.xaxis, panel.yaxis)
        for tick in axis.get_major_ticks()
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    texts = [text for text in texts if text not in beyond]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    assert len(boxes) >= 6
    for name, box in boxes:
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1, name
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1, name
    overprinted = [
        (one, other)
        for (one, first), (other, second) in combinations(boxes, 2)
        if first.overlaps(second)
    ]
    assert overprinted == []


@pytest.mark.parametrize("span_ms", [500, 3_000, 40_000, 7_200_000, 90_000_000, 864_000_000])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_labels_of_a_time_axis_differ(busy, span_ms, size):
    bucket_ms = span_ms // 50
    timeline = [
        replace(busy.timeline[0], at_ms=EPOCH_MS + place * bucket_ms) for place in range(51)
    ]
    short = replace(busy, timeline=timeline, bucket_ms=bucket_ms)
    figure = figure_of(short, look_of(short, LIGHT, size), "Throughput")
    figure.draw_without_rendering()
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert len(labels) == len({*labels}) >= 2


@pytest.mark.parametrize(
    ("low_ms", "high_ms", "ticks"),
    [
        (0.5, 2_200_000, ["1 ms", "100 ms", "10 s", "10 min"]),
        (45, 60_000, ["100 ms", "1 s", "10 s", "1 min"]),
        (0.7, 40, ["1 ms", "2 ms", "5 ms", "10 ms", "20 ms"]),
        (10_000, 1_000_000, ["10 s", "20 s", "1 min", "2 min", "5 min", "10 min"]),
        (1, 10**9, ["1 ms", "100 ms", "10 s", "10 min", "10 h", "10 d"]),
        (51, 52, []),
    ],
)
def test_the_marks_of_durations_are_round_and_few(low_ms, high_ms, ticks):
    assert [duration(tick) for tick in duration_ticks(low_ms, high_ms, 6)] == ticks


@pytest.mark.parametrize("is_filtered", [True, False])
def test_a_page_has_eight_cards_which_fill_their_rows(report, is_filtered):
    assert cards(replace(report, is_filtered=is_filtered)).count("<b>") == 8
