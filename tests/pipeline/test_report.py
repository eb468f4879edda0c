"""Compare a report by Spark with a report by plain Python, and check the written files."""

import csv
import io
import json
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from taskraft.v1.feed_service_pb2 import ChangeEvent
from taskraft.v1.task_pb2 import Task
from taskraft_pipeline.figures import FIGURES
from taskraft_pipeline.journal import export
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.options import parse
from taskraft_pipeline.report import compute
from taskraft_pipeline.report.chart_look import colours_of
from taskraft_pipeline.report.charts import CHARTS
from taskraft_pipeline.report.make import report_from_feed, report_from_journal, write_report
from taskraft_pipeline.report.report import (
    ALL_TUBES,
    ATTEMPTS_MAX,
    BUCKETS_MAX,
    OTHER_TUBES,
    QUANTILES,
    AttemptCount,
    DurationStatistics,
    FailureCount,
    PartitionCoverage,
    Report,
    TimelineBucket,
    TransitionCount,
    TubeStatistics,
    bucket_width_ms,
)
from taskraft_pipeline.report.tables import as_text, duration, ratio
from tests.pipeline.feed_server import FeedServer
from tests.pipeline.figure_oracle import figures_of, is_crossing, is_failure, is_run_end

ROOT = Path(__file__).parents[2]


def kind_of(event):
    return ChangeEvent.Kind.Name(event.kind).lower()


def is_wait_end(event):
    return (event.from_state, event.to_state) == (Task.READY, Task.TAKEN)


def state_of(number):
    return Task.State.Name(number).lower() if number else ""


def transitions_of(events):
    counts = Counter(
        (one.tube, state_of(one.from_state), state_of(one.to_state), is_crossing(one))
        for one in events
    )
    return [TransitionCount(*key, count) for key, count in sorted(counts.items())]


def spread_of(durations):
    if not durations:
        return DurationStatistics(0, (), 0)
    percentiles = np.percentile(durations, [quantile * 100 for quantile in QUANTILES])
    return DurationStatistics(len(durations), tuple(map(float, percentiles)), max(durations))


def tube_of(name, events):
    def durations(is_end):
        return [event.at_ms - event.since_ms for event in events if is_end(event)]

    return TubeStatistics(
        name=name,
        counts={figure: count for figure, count in figures_of(events).items() if count},
        first_ms=min(event.at_ms for event in events),
        last_ms=max(event.at_ms for event in events),
        wait=spread_of(durations(is_wait_end)),
        run=spread_of(durations(is_run_end)),
        attempts_max=max(event.attempt for event in events),
    )


def timeline_of(events, bucket_ms):
    found = {}
    for event in events:
        key = (event.at_ms // bucket_ms * bucket_ms, event.tube)
        counts = found.setdefault(key, Counter())
        counts[kind_of(event)] += 1
        counts["failed"] += event.attempt_failed
        for name, state in (("ready", Task.READY), ("taken", Task.TAKEN)):
            counts[f"grown {name}"] += (event.to_state == state) - (event.from_state == state)
    return [
        TimelineBucket(at_ms, tube, one["put"], one["take"], one["ack"], one["failed"],
               one["grown ready"], one["grown taken"])
        for (at_ms, tube), one in sorted(found.items())
    ]  # fmt: skip


def plain_report(events, source="change feed"):
    """Return the report of events without Spark."""
    parts = []
    for partition in sorted({event.partition for event in events}):
        own = [event for event in events if event.partition == partition]
        numbers = [event.seq for event in own]
        times = [event.at_ms for event in own]
        parts.append(
            PartitionCoverage(
                partition, min(numbers), max(numbers), len(own), min(times), max(times)
            )
        )
    span_ms = max(part.last_ms for part in parts) - min(part.first_ms for part in parts)
    bucket_ms = bucket_width_ms(span_ms)
    names = [name for name, _ in Counter(event.tube for event in events).most_common()]
    names.sort(key=lambda name: name == OTHER_TUBES)
    failed = Counter()
    last_ms, example = {}, {}
    for event in events:
        if is_failure(event):
            key = (event.tube, kind_of(event), event.reason, event.fingerprint)
            failed[key] += 1
            last_ms[key] = max(last_ms.get(key, 0), event.at_ms)
            example[key] = min(example.get(key, event.message), event.message)
    finished = Counter(
        (one.tube, min(one.attempt, ATTEMPTS_MAX)) for one in events if one.kind == ChangeEvent.ACK
    )
    return Report(
        source=source,
        is_filtered=False,
        is_exact=True,
        parts=parts,
        total=tube_of(ALL_TUBES, events),
        tube_count=len(names),
        tubes=[tube_of(name, [one for one in events if one.tube == name]) for name in names],
        bucket_ms=bucket_ms,
        transitions=transitions_of(events),
        timeline=timeline_of(events, bucket_ms),
        failures=[
            FailureCount(*key, count, last_ms[key], example[key])
            for key, count in sorted(failed.items(), key=lambda item: (-item[1], item[0]))
        ],
        attempts=[AttemptCount(*key, tasks) for key, tasks in sorted(finished.items())],
    )


def rounded(report):
    """Return a report with rounded percentiles, because interpolation differs in the last bits."""

    def of_tube(tube):
        return replace(
            tube,
            wait=replace(tube.wait, quantiles=tuple(round(q, 6) for q in tube.wait.quantiles)),
            run=replace(tube.run, quantiles=tuple(round(q, 6) for q in tube.run.quantiles)),
        )

    tubes = [of_tube(tube) for tube in report.tubes]
    return replace(report, total=of_tube(report.total), tubes=tubes)


@pytest.mark.spark
def test_every_number_of_a_report_equals_that_of_a_plain_loop(spark, cluster, events):
    found = rounded(report_from_feed(spark, cluster.endpoints))
    wanted = rounded(plain_report(events))
    for name in Report.__slots__:
        assert getattr(found, name) == getattr(wanted, name), name
    assert found.is_complete
    assert found.is_from_the_start


@pytest.mark.spark
def test_a_journal_gives_the_same_numbers_as_its_feed(spark, cluster, events, tmp_path):
    journal = Journal.at(tmp_path)
    options = {"endpoints": cluster.endpoints}
    export.prepare(journal, parse(options))
    export.start(spark, journal, options).awaitTermination()
    found = report_from_journal(spark, str(tmp_path))
    assert rounded(found) == rounded(plain_report(events, f"journal {tmp_path}"))
    only = report_from_journal(spark, str(tmp_path), ["billing"])
    assert (only.is_filtered, [tube.name for tube in only.tubes]) == (True, ["billing"])


@pytest.mark.spark
def test_a_filtered_report_is_not_called_complete(spark, cluster, events):
    found = report_from_feed(spark, cluster.endpoints, ["mail"])
    assert found.events == sum(event.tube == "mail" for event in events)
    assert (found.is_filtered, found.is_complete, found.is_from_the_start) == (True, False, False)


@pytest.mark.spark
def test_sketched_percentiles_are_close_to_exact_ones(spark, cluster, events, monkeypatch):
    monkeypatch.setattr(compute, "EXACT_EVENTS_MAX", 100)
    found = report_from_feed(spark, cluster.endpoints)
    assert not found.is_exact
    for tube in found.tubes:
        runs = [
            event.at_ms - event.since_ms
            for event in events
            if event.tube == tube.name and event.kind != ChangeEvent.TAKE and event.session
        ]
        nearest = np.percentile(runs, np.array(QUANTILES) * 100, method="inverted_cdf")
        np.testing.assert_allclose(tube.run.quantiles, nearest, rtol=0.001)


@pytest.mark.spark
def test_tubes_beyond_the_maximum_are_counted_as_one(spark, cluster, events, monkeypatch):
    monkeypatch.setattr(compute, "TUBES_MAX", 1)
    busiest = Counter(event.tube for event in events).most_common(1)[0][0]
    folded = [
        event if event.tube == busiest else replace(event, tube=OTHER_TUBES) for event in events
    ]
    found = report_from_feed(spark, cluster.endpoints)
    assert rounded(found) == replace(rounded(plain_report(folded)), tube_count=3)
    assert [tube.name for tube in found.tubes] == [busiest, OTHER_TUBES]
    assert rounded(found).total == rounded(plain_report(events)).total
    assert "in 3 tubes" in as_text(found)


@pytest.mark.spark
def test_late_attempts_are_counted_together(spark, events):
    late = [replace(event, attempt=event.attempt + ATTEMPTS_MAX - 2) for event in events]
    assert max(event.attempt for event in late) > ATTEMPTS_MAX
    with FeedServer(late, nodes=1, events_per_chunk=400) as server:
        found = report_from_feed(spark, server.endpoints)
    assert found.attempts == plain_report(late).attempts
    assert max(one.attempt for one in found.attempts) == ATTEMPTS_MAX
    heads = as_text(found).split("Acknowledged at attempt\n")[1].splitlines()[0].split()
    assert heads == ["tube", f"{ATTEMPTS_MAX - 1}", f"{ATTEMPTS_MAX}+"]


@pytest.mark.spark
def test_the_driver_gets_no_more_rows_than_the_maximum(spark, cluster, monkeypatch):
    monkeypatch.setattr(compute, "PARTS_MAX", 3)
    with pytest.raises(compute.TooManyRows, match="more than 3 rows with the columns feed_part"):
        report_from_feed(spark, cluster.endpoints)


@pytest.mark.spark
def test_a_feed_without_events_is_nothing_to_report(spark, cluster):
    cluster.feed.partitions = {0: [], 1: []}
    with pytest.raises(compute.NothingToReport):
        report_from_feed(spark, cluster.endpoints)


@pytest.mark.parametrize("span_ms", [0, 1, 999, 60_000, 3_600_000, 86_400_000, 10**12])
def test_a_timeline_has_a_readable_number_of_steps(span_ms):
    assert span_ms // bucket_width_ms(span_ms) + 1 <= BUCKETS_MAX
    assert bucket_width_ms(60_000) == 1_000


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "-"), (0, "0 ms"), (999.4, "999 ms"), (999.6, "1 s"), (1_250, "1.25 s"),
        (59_900, "59.9 s"), (59_960, "1 min"), (100_200, "1 min 40 s"), (600_000, "10 min"),
        (3_599_700, "1 h"), (7_500_000, "2 h 05 min"), (93_600_000, "26 h"),
        (864_000_000, "10 d"), (262_800_000, "3 d 01 h"),
    ],
)  # fmt: skip
def test_a_duration_is_written_with_a_fitting_unit(milliseconds, text):
    assert duration(milliseconds) == text


def test_a_ratio_is_written_with_three_digits():
    assert [ratio(number) for number in (None, 0.5, 12.345, 1_234.5)] == [
        "-", "0.5", "12.3", "1,234",
    ]  # fmt: skip


class Cells(HTMLParser):
    """Collects the cells of tables and the sources of images in a page."""

    def __init__(self):
        super().__init__()
        self.cells = []
        self.sources = []
        self.tags = set()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.sources += [value for name, value in attributes if name in {"src", "srcset", "href"}]

    def handle_data(self, data):
        self.cells.append(data)


@pytest.fixture
def report(events):
    return plain_report(events)


def test_a_report_is_written_in_every_form(report, tmp_path):
    page = write_report(report, tmp_path).page
    assert {path.name for path in tmp_path.iterdir()} == {
        "report.html", "report.txt", "report.json",
        "tubes.csv", "transitions.csv", "timeline.csv", "failures.csv", "attempts.csv",
    }  # fmt: skip
    parser = Cells()
    parser.feed(page.read_text())
    assert {source[:22] for source in parser.sources} == {"data:image/png;base64,"}
    assert len({*parser.sources}) == 4 * len(CHARTS)
    assert "script" not in parser.tags
    assert {"mail", "billing", "thumbnails", ALL_TUBES, "complete"} <= set(parser.cells)
    assert (tmp_path / "report.txt").read_text() == as_text(report)
    stored = json.loads((tmp_path / "report.json").read_text())
    assert stored["total"]["counts"]["put"] == report.total.count("put")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "tubes.csv").read_text())))
    assert [int(row["acknowledged"]) for row in rows] == [
        *(tube.count("acknowledged") for tube in report.tubes),
        report.total.count("acknowledged"),
    ]


def test_the_documentation_lists_each_figure():
    page = (ROOT / "docs" / "pipeline.md").read_text()
    for figure in FIGURES:
        assert f"| `{figure.name}` | {figure.meaning} | {figure.queue} |\n" in page


def test_a_report_begins_with_what_has_changed_since_the_last_report(events, tmp_path):
    early = [event for event in events if event.seq < 800]
    assert "Since the last report" not in write_report(plain_report(early), tmp_path).text
    now = plain_report(events)
    written = write_report(now, tmp_path)
    before = plain_report(early).total.count("acknowledged")
    (line,) = [line for line in changes_of(written.text) if line[0] == "all"]
    assert f"+{now.total.count('acknowledged') - before:,}" in line
    page = written.page.read_text()
    assert page.index("Since the last report") < page.index("Throughput")
    (line,) = changes_of(write_report(now, tmp_path).text)
    assert (line[:2], set(line[2:])) == (["all", "tubes"], {"="})


def changes_of(text):
    """Return the words of the rows of the table of changes."""
    if "Since the last report" not in text:
        return []
    table = text[text.index("Since the last report") :].split("\n\n")[0]
    return [line.split() for line in table.splitlines()[3:]]


def test_a_failure_that_the_last_report_did_not_have_is_new(events, tmp_path):
    known = [event for event in events if event.reason != "HTTP 503"]
    write_report(plain_report(known), tmp_path)
    text = write_report(plain_report(events), tmp_path).text
    new = text[text.index("New failures") :].split("\n\n")[0]
    assert "mail: HTTP 503" in new
    assert "ValueError" not in new


@pytest.mark.parametrize("last", ["", "[]", '{"format": 0}'])
def test_a_last_report_of_another_format_or_source_is_not_compared(events, tmp_path, last):
    (tmp_path / "report.json").write_text(last)
    assert "Since" not in write_report(plain_report(events), tmp_path).text
    other = plain_report(events, "journal elsewhere")
    assert "Since" not in write_report(other, tmp_path).text
    fewer = plain_report([event for event in events if event.seq < 800], "journal elsewhere")
    assert "Since" not in write_report(fewer, tmp_path).text


def test_a_tube_that_one_report_counts_among_others_is_not_compared(events, tmp_path):
    def folded(name):
        return [replace(one, tube=OTHER_TUBES) if one.tube == name else one for one in events]

    write_report(plain_report(folded("mail")), tmp_path)
    more = replace(max(events, key=lambda event: event.seq), tube="mail")
    more.seq += 1
    text = write_report(plain_report([*folded("billing"), more]), tmp_path).text
    assert [line[0] for line in changes_of(text)] == ["all"]


def test_failures_that_are_left_out_are_counted_in_one_row(report):
    listed, *others = report.failures
    assert others
    assert "other failures" not in as_text(report)
    text = as_text(replace(report, failures=[listed]))
    table = text[text.index("\nFailures\n") :].strip().split("\n\n")[0].splitlines()
    assert table[-1].split() == [
        "other", "failures", "-", f"{sum(one.count for one in others):,}", "-", "-",
    ]  # fmt: skip


def test_names_cannot_break_the_page(events, tmp_path):
    evil = "<script>alert(1)</script>"
    report = plain_report([replace(event, tube=evil) for event in events])
    page = write_report(report, tmp_path).page
    parser = Cells()
    parser.feed(page.read_text())
    assert "script" not in parser.tags
    assert evil in parser.cells


def test_a_history_of_a_single_event_has_a_report(events, tmp_path):
    text = as_text(plain_report(events[:1]))
    write_report(plain_report(events[:1]), tmp_path)
    assert "1 event of 1 task in 1 tube" in text


def test_many_tubes_share_the_last_colour(events, tmp_path):
    many = [replace(event, tube=f"tube-{event.task_id % 30}") for event in events]
    report = plain_report(many)
    assert len(report.tubes) == 30
    colours = colours_of(report)
    assert (len(colours), [*colours][-1]) == (8, "others")
    assert len({*colours.values()}) == 8
    assert write_report(report, tmp_path).page.exists()


def test_a_tube_without_marks_in_the_charts_gets_no_colour(events, tmp_path):
    last_ms = max(event.at_ms for event in events)
    touched = replace(
        events[0], tube="idle", kind=ChangeEvent.TOUCH, from_state=0, to_state=0, at_ms=last_ms
    )
    report = plain_report([*events, touched])
    assert "idle" in {tube.name for tube in report.tubes}
    assert "idle" not in colours_of(report)
    assert write_report(report, tmp_path).page.exists()


def test_every_form_of_a_report_shows_gaps(report, tmp_path):
    holed = replace(report, parts=[replace(report.parts[0], events=1), *report.parts[1:]])
    assert not holed.is_complete
    assert "WITH GAPS" in write_report(holed, tmp_path).page.read_text()
    assert "WITH GAPS" in as_text(holed)
