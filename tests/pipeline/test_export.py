"""Export the feed into a journal with Spark, and kill the exporter during the export."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException

from taskraft_pipeline.cli import FOLLOW_OUTAGE, print_progress
from taskraft_pipeline.errors import CursorTrimmed, FeedMismatch
from taskraft_pipeline.journal import export
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.journal.loading import load
from taskraft_pipeline.journal.outage_watch import OutageWatch, wait_for_end
from taskraft_pipeline.journal.verify import verify
from taskraft_pipeline.options import parse
from taskraft_pipeline.spark_failures import failure_text
from tests.pipeline.exporter import BATCH_EVENTS
from tests.pipeline.rows import expected_rows, found_rows

pytestmark = pytest.mark.spark

RUN_SECONDS_MAX = 150


@pytest.fixture
def journal(tmp_path):
    return Journal.at(tmp_path / "a journal")


def options_of(cluster, batch_events=3_000, **more):
    return {"endpoints": cluster.endpoints, "maxEventsPerTrigger": str(batch_events), **more}


def run(spark, journal, cluster, **options):
    given = options_of(cluster, **options)
    told = []
    export.prepare(journal, parse(given))
    export.start(spark, journal, given, on_published=told.append).awaitTermination()
    return told


def test_a_journal_holds_the_feed_and_grows_with_it(spark, cluster, events, journal):
    cluster.feed.partitions.clear()
    half = [event for event in events if event.seq < 500]
    cluster.feed.append(half)
    told = run(spark, journal, cluster)
    assert [progress.events for progress in told] == [len(half)]
    assert run(spark, journal, cluster) == []
    cluster.feed.append([event for event in events if event.seq >= 500])
    assert [progress.batch for progress in run(spark, journal, cluster)] == [1]
    verdict = verify(journal, is_deep=True)
    assert (verdict.problems, verdict.notes, verdict.events) == ([], [], len(events))
    assert verdict.next_seq == cluster.feed.high
    assert found_rows(load(spark, journal)) == expected_rows(events)


def test_a_journal_begins_where_retention_has_left_the_feed(spark, cluster, events, journal):
    cluster.feed.low[1] = 300
    run(spark, journal, cluster, batch_events=100_000)
    verdict = verify(journal, is_deep=True)
    assert verdict.problems == []
    assert verdict.start == {0: 0, 1: 300, 2: 0, 3: 0}
    assert verdict.events == len(events) - 300


def test_a_journal_is_continued_only_by_a_matching_export(spark, cluster, events, journal):
    run(spark, journal, cluster, batch_events=100_000)
    given = options_of(cluster)
    # The cluster has another feed.
    cluster.feed.feed_id = "feed-2"
    with pytest.raises(FeedMismatch):
        export.prepare(journal, parse(given))
    cluster.feed.feed_id = "feed-1"
    # The export starts with a new checkpoint, without a check by `prepare`.
    kept = journal.root / "kept"
    journal.checkpoint.rename(kept)
    with pytest.raises(PySparkException, match="written by another query"):
        export.start(spark, journal, given).awaitTermination()
    # The journal has no manifest of a batch that the checkpoint contains.
    shutil.rmtree(journal.checkpoint)
    kept.rename(journal.checkpoint)
    journal.manifest_path(0).unlink()
    cluster.feed.append([replace(events[0], seq=cluster.feed.high[events[0].partition])])
    with pytest.raises(PySparkException, match="no manifest of batch 0"):
        export.start(spark, journal, given).awaitTermination()


def test_a_journal_without_its_checkpoint_is_continued_from_its_manifests(
    spark, cluster, events, journal
):
    cluster.feed.partitions.clear()
    cluster.feed.append([event for event in events if event.seq < 500])
    run(spark, journal, cluster, batch_events=1_000)
    batches = verify(journal).batches
    shutil.rmtree(journal.checkpoint)
    cluster.feed.append([event for event in events if event.seq >= 500])
    told = run(spark, journal, cluster, batch_events=1_000)
    assert told[0].batch == batches > 1
    verdict = verify(journal, is_deep=True)
    assert (verdict.problems, verdict.events) == ([], len(events))
    assert verdict.notes == [f"batch {batches}: the first batch of a new checkpoint"]
    assert run(spark, journal, cluster) == []
    assert found_rows(load(spark, journal)) == expected_rows(events)


def test_an_export_keeps_events_until_they_are_published(spark, cluster, events, journal):
    run(spark, journal, cluster, batch_events=100_000)
    assert cluster.feed.cursors == [(f"journal-{journal.id()[:8]}", dict(cluster.feed.high))]


def test_a_gap_ends_the_export_or_is_recorded(spark, cluster, events, journal):
    cluster.feed.partitions.clear()
    cluster.feed.append([event for event in events if event.seq < 500])
    run(spark, journal, cluster)
    before = verify(journal).events
    cluster.feed.append([event for event in events if event.seq >= 500])
    cluster.feed.low[1] = 700
    with pytest.raises(CursorTrimmed):
        export.prepare(journal, parse(options_of(cluster)))
    with pytest.raises(PySparkException) as caught:
        export.start(spark, journal, options_of(cluster)).awaitTermination()
    assert failure_text(caught.value).startswith("CURSOR_TRIMMED: retention has removed event 500")
    (progress,) = run(spark, journal, cluster, failOnDataLoss="false")
    assert progress.lost == 200
    verdict = verify(journal, is_deep=True)
    assert (verdict.problems, verdict.events_lost) == ([], 200)
    assert verdict.events == len(events) - 200 > before
    assert "retention removed the events 500 to 699 of partition 1" in verdict.notes[0]


def test_an_error_within_a_batch_is_one_line_and_a_file(spark, cluster, journal, tmp_path):
    options = options_of(cluster)
    assert export.prepare(journal, parse(options)) == cluster.feed.events
    (journal.root / "_manifests").touch()  # no folder, so the first manifest cannot be written
    with pytest.raises(PySparkException) as caught:
        export.start(spark, journal, options).awaitTermination()
    line = failure_text(caught.value, tmp_path)
    assert line.startswith("Spark failed: NotADirectoryError: ")
    assert "\n" not in line
    (file,) = tmp_path.glob("taskraft-pipeline-*.txt")
    assert "Traceback" in file.read_text()


def test_a_followed_export_tells_an_outage_and_its_lag_and_loses_nothing(
    spark, cluster, events, journal, capsys
):
    cluster.feed.partitions.clear()
    cluster.feed.append([event for event in events if event.seq < 500])
    told, batches = [], []

    def are_dead(dead):
        for node in cluster.nodes:
            node.dies_after = 0 if dead else None

    def published(batch):
        print_progress(batch)
        are_dead(batch.lag == 0 and not told)
        batches.append(batch)

    def tell(line):
        told.append(line)
        if len(told) == 1:
            cluster.feed.append([event for event in events if event.seq >= 500])
            are_dead(dead=False)

    def pause(_):
        threading.Event().wait(0.02)
        if len(told) == 2 and sum(batch.events for batch in batches) == len(events):
            signal.raise_signal(signal.SIGTERM)

    given = options_of(cluster, batch_events=1_000, maxOutage=FOLLOW_OUTAGE)
    assert export.prepare(journal, parse(given)) == cluster.feed.events
    query = export.start(spark, journal, given, interval_ms=50, on_published=published)
    assert wait_for_end(query, OutageWatch(parse(given), tell), pause) == signal.SIGTERM
    silent, again = told
    assert silent.startswith("waiting for the nodes: no node answered")
    assert again.startswith("the nodes answer again after ")
    lags = [batch.lag for batch in batches]
    assert (lags[0] > 0, lags.count(0), lags[-1]) == (True, 2, 0)
    first = f"batch 0: 1,000 events, {lags[0]:,} behind the feed"
    assert capsys.readouterr().out.splitlines()[0] == first
    assert [next_seq for _, next_seq in cluster.feed.cursors] == [
        dict(manifest.next_seq) for manifest in journal.manifests()
    ]
    assert verify(journal, is_deep=True).problems == []
    assert found_rows(load(spark, journal)) == expected_rows(events)


class Exporter:
    """An exporter in its own process group; a context manager that kills it at the end."""

    def __init__(self, cluster, journal, *kill):
        command = [sys.executable, "-m", "tests.pipeline.exporter", cluster.endpoints]
        self.process = subprocess.Popen(
            [*command, str(journal.root), *map(str, kill)],
            # Processes that a killed exporter leaves behind write only to the folder of the test.
            env={**os.environ, "TMPDIR": str(journal.root.parent)},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
        self.process.communicate()

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)

    def wait(self):
        output, _ = self.process.communicate(timeout=RUN_SECONDS_MAX)
        return self.process.returncode, output


def test_an_exporter_that_is_killed_while_it_reads_exports_each_event_once(
    spark, cluster, events, journal
):
    killed = threading.Event()
    with Exporter(cluster, journal) as exporter:

        def kill_while_reading():
            if not killed.is_set():
                killed.set()
                exporter.kill()

        for node in cluster.nodes:
            node.on_chunk = kill_while_reading
        assert exporter.wait()[0] == -signal.SIGKILL
    assert killed.is_set()
    assert (journal.checkpoint / "offsets" / "0").exists()
    assert verify(journal).batches == 0
    finish(spark, cluster, events, journal)


@pytest.mark.nightly
def test_an_exporter_that_is_killed_before_and_after_it_publishes_exports_each_event_once(
    spark, cluster, events, journal
):
    for step, batch in (("before", 1), ("after", 2)):
        with Exporter(cluster, journal, step, batch) as exporter:
            code, output = exporter.wait()
            assert code == -signal.SIGKILL, output
        verdict = verify(journal, is_deep=True)
        assert verdict.problems == []
        assert verdict.batches == (batch if step == "before" else batch + 1)
        assert bool(verdict.notes) == (step == "before")
        assert not (journal.checkpoint / "commits" / str(batch)).exists()
    finish(spark, cluster, events, journal)


def finish(spark, cluster, events, journal):
    """Run an export to its end, and compare the journal with the feed."""
    run(spark, journal, cluster, batch_events=BATCH_EVENTS)
    verdict = verify(journal, is_deep=True)
    assert (verdict.problems, verdict.notes) == ([], [])
    assert (verdict.batches, verdict.events) == (-(-len(events) // BATCH_EVENTS), len(events))
    assert found_rows(load(spark, journal)) == expected_rows(events)
