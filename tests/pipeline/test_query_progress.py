"""Progress of streaming queries: lag by partition, rate and bytes, and the names of jobs."""

import json
from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress

from taskraft_pipeline.journal import batch_writer, export
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.options import parse
from taskraft_pipeline.query_progress import (
    REPORTS_MAX,
    FeedListener,
    feed_progress,
    observed,
    offset_of,
    told_progress,
)
from taskraft_pipeline.schema import COLUMNS
from taskraft_pipeline.spark_session import DESCRIPTION, described

BATCH_EVENTS = 1_000


def offset(**positions):
    return {"v": 1, "feed": "feed-1", "p": {key.lstrip("p"): seq for key, seq in positions.items()}}


END = offset(p000=10, p001=20)


def source(end=END, latest=None, rows=500):
    return SourceProgress(
        "PythonMicroBatchStream@1", "None", end, latest or end, rows, 1.0, 1.0, metrics={}
    )


def progress(*sources, name="mail", size=None, milliseconds=250):
    return StreamingQueryProgress(
        id="4711", runId="1", name=name, timestamp="", batchId=1_234, batchDuration=milliseconds,
        durationMs={}, eventTime={}, stateOperators=[], sources=list(sources), sink=None,
        numInputRows=0, inputRowsPerSecond=0.0, processedRowsPerSecond=0.0,
        observedMetrics={} if size is None else {"taskraft": {"bytes": size}},
    )  # fmt: skip


def event(*sources, **fields):
    return SimpleNamespace(progress=progress(*sources, **fields))


@pytest.mark.parametrize("form", [json.dumps, dict])
def test_the_lag_of_each_partition_comes_from_the_offsets(form):
    latest = offset(p000=13, p001=20, p002=9)
    (found,) = feed_progress(progress(source(form(END), form(latest)), size=1_500_000))
    assert found.lags == {0: 3, 1: 0, 2: 9}
    assert str(found) == (
        "mail: batch 1,234, 2,000 events/s, 6.0 MB/s, 12 events behind (partition 2: 9)"
    )


def test_a_query_without_name_bytes_or_lag_is_told_with_what_is_known():
    (found,) = feed_progress(progress(source(), name=None))
    assert str(found) == "4711: batch 1,234, 2,000 events/s, at the end of the feed"
    (found,) = feed_progress(progress(source(latest="None")))
    assert (found.lags, str(found).endswith("events/s, lag unknown")) == (None, True)
    (found,) = feed_progress(progress(source(rows=0), milliseconds=0))
    assert found.events_per_second == 0


@pytest.mark.parametrize(
    "other", [None, "None", "17", 17, '{"topic": {"0": 5}}', json.dumps(END | {"v": 2})]
)
def test_a_source_that_is_no_change_feed_has_no_progress(other):
    assert offset_of(other) is None
    assert len(feed_progress(progress(source(other), source()))) == 1


def test_a_listener_tells_one_line_for_each_query_and_interval():
    now, told = [100.0], []
    listener = FeedListener(told.append, 30, lambda: now[0])
    for seconds in (0, 29, 30, 31, 59, 60):
        now[0] = 100.0 + seconds
        listener.onQueryProgress(event(source(), name="mail"))
    now[0] += 1
    listener.onQueryProgress(event(source(), name="billing"))
    assert [line.split(":")[0] for line in told] == ["mail", "mail", "billing"]
    assert [one.query for one in listener.reports] == ["mail"] * 6 + ["billing"]


def test_a_listener_keeps_a_bounded_number_of_reports():
    listener = FeedListener([].append)
    for number in range(REPORTS_MAX + 1):
        listener.onQueryProgress(event(source(rows=number)))
    assert (len(listener.reports), listener.reports[0].events) == (REPORTS_MAX, 1)


@pytest.fixture
def stream(spark, cluster):
    reader = spark.readStream.format("taskraft").option("endpoints", cluster.endpoints)
    return reader.option("startingOffsets", "earliest").option("maxEventsPerTrigger", BATCH_EVENTS)


def run(spark, rows, write):
    """Run a stream to its end; return its reports."""
    with told_progress(spark, [].append) as listener:
        query = rows.writeStream.foreachBatch(write).trigger(availableNow=True).start()
        query.awaitTermination()
        # Spark delivers the events of a query in order, before the listener is removed.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return list(listener.reports)


@pytest.mark.spark
def test_a_real_query_reports_its_rate_its_bytes_and_its_lag(spark, cluster, events, stream):
    sizes = []

    def write(rows, _):
        texts = [name for name, kind in COLUMNS.items() if kind == "STRING"]
        length = sum(F.coalesce(F.length(F.encode(name, "utf-8")), F.lit(0)) for name in texts)
        numbers = {"INT": 4, "BIGINT": 8, "TIMESTAMP": 8, "BOOLEAN": 1}
        fixed = sum(
            F.when(F.col(name).isNull(), 0).otherwise(numbers[kind])
            for name, kind in COLUMNS.items()
            if kind in numbers
        )
        sizes.append(rows.agg(F.sum(length + fixed)).first()[0])

    found = run(spark, observed(stream.load()), write)
    assert sum(one.events for one in found) == len(events)
    left = len(events)
    for one in found:
        left -= one.events
        assert sum(one.lags.values()) == left
        assert one.lags.keys() == cluster.feed.high.keys()
    assert left == 0
    for one, size in zip(found, sizes, strict=True):
        seconds = one.events / one.events_per_second
        assert one.bytes_per_second * seconds == pytest.approx(size)


@pytest.mark.spark
def test_the_work_of_a_block_has_its_name_and_then_the_earlier_name(spark):
    context = spark.sparkContext
    with described(spark, "outer"):
        with described(spark, "inner"):
            assert context.getLocalProperty(DESCRIPTION) == "inner"
        assert context.getLocalProperty(DESCRIPTION) == "outer"
    assert context.getLocalProperty(DESCRIPTION) is None
    with described(SimpleNamespace(), "a session of Spark Connect has no context"):
        assert context.getLocalProperty(DESCRIPTION) is None


@pytest.mark.spark
def test_the_work_of_an_export_names_what_it_reads(spark, cluster, events, tmp_path, monkeypatch):
    journal = Journal.at(tmp_path)
    names = []

    def write_files(changes, place):
        names.append(spark.sparkContext.getLocalProperty(DESCRIPTION))
        original(changes, place)

    original = batch_writer.write_files
    monkeypatch.setattr(batch_writer, "write_files", write_files)
    options = {"endpoints": cluster.endpoints, "maxEventsPerTrigger": str(BATCH_EVENTS)}
    export.prepare(journal, parse(options))
    export.start(spark, journal, options).awaitTermination()
    assert names[0] == "taskraft export: batch 0, 1,000 events of the feed"
    assert names[-1].endswith(f", {len(events) % BATCH_EVENTS:,} events of the feed")
