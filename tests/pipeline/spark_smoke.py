"""Read a feed with the PySpark of this Python: a batch query, a streaming query and an export.

`tests.pipeline.spark_versions` runs this file with each version of PySpark. The last line of the
output says how many events each of them read.
"""

import sys
import tempfile
from pathlib import Path

from taskraft_pipeline.journal import export
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.journal.verify import verify
from taskraft_pipeline.options import parse
from taskraft_pipeline.query_progress import observed, told_progress
from taskraft_pipeline.spark_session import spark_session
from tests.pipeline.feed_server import FeedServer
from tests.pipeline.history import history

TASKS = 300


def batch_events(spark, endpoints):
    """Return the number of events that a batch query reads."""
    return spark.read.format("taskraft").option("endpoints", endpoints).load().count()


def stream_events(spark, endpoints):
    """Return the number of events that a streaming query reads, in several batches."""
    reader = spark.readStream.format("taskraft").option("endpoints", endpoints)
    reader = reader.option("startingOffsets", "earliest").option("maxEventsPerTrigger", 400)
    found = []
    with told_progress(spark, [].append):
        stream = observed(reader.load()).writeStream
        query = stream.foreachBatch(lambda rows, _: found.append(rows.count()))
        query.trigger(availableNow=True).start().awaitTermination()
    assert len(found) > 1
    return sum(found)


def exported_events(spark, endpoints, folder):
    """Return the number of events of an exported journal, which is verified."""
    journal, options = Journal.at(folder), {"endpoints": endpoints}
    export.prepare(journal, parse(options))
    export.start(spark, journal, options).awaitTermination()
    verdict = verify(journal, is_deep=True)
    assert verdict.problems == []
    return verdict.events


def main():
    """Read in all ways, and compare the numbers of events."""
    events = history(TASKS, seed=7)
    with (
        tempfile.TemporaryDirectory() as folder,
        FeedServer(events, nodes=1, events_per_chunk=100) as server,
        spark_session("versions", "local[2,3]", is_brief=True) as spark,
    ):
        found = {
            "batch": batch_events(spark, server.endpoints),
            "stream": stream_events(spark, server.endpoints),
            "journal": exported_events(spark, server.endpoints, Path(folder) / "journal"),
        }
    assert set(found.values()) == {len(events)}, found
    print(f"read {len(events):,} events")


if __name__ == "__main__":
    sys.exit(main())
