"""Read the feed with Spark, in batch and streaming queries."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from pyspark.errors import AnalysisException, PySparkException

from taskraft.v1.feed_service_pb2 import ChangeEvent
from taskraft_pipeline.offsets import Offset
from taskraft_pipeline.schema import COLUMNS
from tests.pipeline.rows import expected_rows, found_rows

pytestmark = pytest.mark.spark


def batch_of(spark, cluster, **options):
    return spark.read.format("taskraft").options(endpoints=cluster.endpoints, **options).load()


def stream_of(spark, cluster, **options):
    options = {"startingOffsets": "earliest", **options}
    return (
        spark.readStream.format("taskraft").options(endpoints=cluster.endpoints, **options).load()
    )


def keys(rows):
    return sorted((one.feed_partition, one.seq) for one in rows)


def keys_of(events):
    return sorted((event.partition, event.seq) for event in events)


class Batches:
    """Collects the rows of each batch of a stream, on the driver."""

    def __init__(self):
        self.rows = {}

    def __call__(self, frame, batch):
        self.rows[batch] = frame.collect()


def run(stream, checkpoint, batches):
    query = (
        stream.writeStream.foreachBatch(batches)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def test_a_batch_has_every_event_with_every_column(spark, cluster, events):
    frame = batch_of(spark, cluster)
    assert frame.columns == list(COLUMNS)
    assert found_rows(frame) == expected_rows(events)


def test_columns_and_tubes_are_chosen_by_options(spark, cluster, events):
    frame = batch_of(spark, cluster, columns="tube,kind", tubes="mail,billing")
    found = {
        (one.tube, one.kind): one["count"]
        for one in frame.groupBy("tube", "kind").count().collect()
    }
    assert found == Counter(
        (event.tube, ChangeEvent.Kind.Name(event.kind).lower())
        for event in events
        if event.tube in {"mail", "billing"}
    )


def test_a_filter_does_not_leak_into_another_query_of_the_same_frame(spark, cluster, events):
    """The source has no pushFilters, because pushed filters would apply to the other query too."""
    frame = batch_of(spark, cluster, columns="tube")
    mail = sum(event.tube == "mail" for event in events)
    assert frame.where("tube = 'mail'").count() == mail
    assert frame.count() == len(events)


def test_a_batch_is_read_to_its_end_though_a_node_dies_and_another_is_behind(
    spark, cluster, events
):
    leader, behind, dying = cluster.nodes
    behind.applied = dict.fromkeys(cluster.feed.partitions, 10)
    dying.dies_after = 1
    # The lagging node must not answer the linearizable description, so the leader answers it.
    frame = batch_of(spark, cluster, columns="feed_partition,seq", targetEventsPerTask="700")
    assert keys(frame.collect()) == keys_of(events)
    assert dying.is_dead
    assert leader.chunks > 0


def test_a_range_is_given_by_offsets(spark, cluster, events):
    start = Offset("feed-1", {0: 100, 1: 50, 2: 0, 3: 10})
    end = Offset("feed-1", {0: 300, 1: 50, 2: 7, 3: 11})
    frame = batch_of(
        spark,
        cluster,
        startingOffsets=json_of(start),
        endingOffsets=json_of(end),
        columns="feed_partition,seq",
    )
    wanted = [
        (partition, seq)
        for partition in range(4)
        for seq in range(start.next_seq[partition], end.next_seq[partition])
    ]
    assert keys(frame.collect()) == wanted


def json_of(offset):
    return json.dumps(offset.to_json())


def test_an_empty_range_has_no_rows(spark, cluster):
    assert batch_of(spark, cluster, startingOffsets="latest").count() == 0


def test_sql_reads_the_feed(spark, cluster, events):
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW feed USING taskraft"
        f" OPTIONS (endpoints '{cluster.endpoints}', columns 'tube')"
    )
    assert spark.sql("SELECT count(*) FROM feed").first()[0] == len(events)


def test_an_unknown_option_is_refused_before_reading(spark, cluster):
    with pytest.raises(AnalysisException, match="unknown option maxeventpertrigger"):
        batch_of(spark, cluster, maxEventPerTrigger="5")


def test_a_stream_takes_at_most_its_limit_at_a_time_and_ends_where_the_feed_was(
    spark, cluster, events, tmp_path
):
    known = len(events)
    later = [
        replace(event, seq=cluster.feed.high[event.partition])
        for event in {event.partition: event for event in events}.values()
    ]

    class Appending(Batches):
        def __call__(self, frame, batch):
            super().__call__(frame, batch)
            if batch == 0:
                cluster.feed.append(later)

    batches = Appending()
    stream = stream_of(spark, cluster, columns="feed_partition,seq", maxEventsPerTrigger="2000")
    run(stream, tmp_path, batches)
    sizes = [len(rows) for _, rows in sorted(batches.rows.items())]
    assert sizes == [2_000] * (known // 2_000) + [known % 2_000]
    assert keys(one for rows in batches.rows.values() for one in rows) == keys_of(events)

    resumed = Batches()
    run(stream, tmp_path, resumed)
    assert keys(one for rows in resumed.rows.values() for one in rows) == keys_of(later)


def test_a_stream_fails_if_retention_has_passed_it(spark, cluster, tmp_path):
    stream = stream_of(spark, cluster, columns="seq", maxEventsPerTrigger="500")

    class Trimming(Batches):
        def __call__(self, frame, batch):
            super().__call__(frame, batch)
            cluster.feed.low[0] = cluster.feed.high[0]

    with pytest.raises(PySparkException, match="CURSOR_TRIMMED"):
        run(stream, tmp_path, Trimming())


def test_a_stream_fails_after_a_restore(spark, cluster, tmp_path):
    stream = stream_of(spark, cluster, columns="seq", failOnDataLoss="false")
    run(stream, tmp_path, Batches())
    cluster.feed.feed_id = "feed-2"
    with pytest.raises(PySparkException, match="FEED_MISMATCH"):
        run(stream, tmp_path, Batches())


def test_a_consumer_reports_its_progress(spark, cluster, tmp_path):
    stream = stream_of(
        spark, cluster, columns="seq", consumer="journal", maxEventsPerTrigger="2500"
    )
    run(stream, tmp_path, Batches())
    assert [name for name, _ in cluster.feed.cursors] == ["journal"] * len(cluster.feed.cursors)
    assert cluster.feed.cursors[0][1] == dict.fromkeys(range(4), 0)
    # The progress includes the last batch, for which Spark never calls `commit`.
    assert cluster.feed.cursors[-1][1] == cluster.feed.high


TWO_SESSIONS = """
import sys
from taskraft_pipeline.spark_session import spark_session

for name in ("first", "second"):
    with spark_session(name, "local[1]", is_brief=True) as spark:
        source = spark.read.format("taskraft").option("endpoints", sys.argv[1])
        print(source.option("columns", "seq").option("kinds", sys.argv[2]).load().count())
"""


def test_a_second_session_in_one_process_reads_too(cluster, events):
    command = [sys.executable, "-c", TWO_SESSIONS, cluster.endpoints, "put"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    puts = sum(event.kind == ChangeEvent.PUT for event in events)
    assert done.stdout.split() == [str(puts)] * 2
