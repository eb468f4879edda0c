"""Fixtures: one Spark session for all tests, and a fake cluster with a feed for each test."""

from dataclasses import replace

import pytest

from taskraft import Client
from taskraft_pipeline import java
from taskraft_pipeline.journal import export
from taskraft_pipeline.journal.compaction import compact
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.options import parse
from taskraft_pipeline.spark_session import spark_session
from tests.pipeline.feed_server import FeedServer
from tests.pipeline.history import history
from tools.local_cluster import LocalCluster

TASKS = 1_500
DAY_MS = 86_400_000
SECOND_DAY_SEQ = 500
"""Events from this sequence number on are of the second day."""


@pytest.fixture(scope="session")
def spark():
    """Return a Spark session; without Java the test is skipped."""
    if not java.is_sufficient():
        pytest.skip(java.HINT)
    with spark_session("tests", "local[2,3]", is_brief=True) as started:
        yield started


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Return a cluster of one real node."""
    with LocalCluster(1, tmp_path_factory.mktemp("nodes")) as cluster:
        yield cluster


@pytest.fixture
def client(nodes):
    """Return a client of the real nodes."""
    with Client(nodes.target) as opened:
        yield opened


@pytest.fixture(scope="session")
def events():
    """Return a history: some thousand events of three tubes in four partitions."""
    return history(TASKS, seed=7)


@pytest.fixture
def cluster(events):
    """Return three nodes that serve the history."""
    with FeedServer(events, nodes=3, events_per_chunk=400) as server:
        yield server


@pytest.fixture(scope="session")
def two_days(events):
    """Return the events of two days."""
    return [
        replace(event, at_ms=event.at_ms + DAY_MS) if event.seq >= SECOND_DAY_SEQ else event
        for event in events
    ]


def run_export(spark, journal, server):
    options = {"endpoints": server.endpoints, "maxEventsPerTrigger": "1500"}
    export.prepare(journal, parse(options))
    export.start(spark, journal, options).awaitTermination()


@pytest.fixture(scope="session")
def compacted(spark, two_days, tmp_path_factory):
    """Return a journal: the first day is compacted, the second day is not."""
    journal = Journal.at(tmp_path_factory.mktemp("journals") / "journal")
    early = [event for event in two_days if event.seq < SECOND_DAY_SEQ]
    with FeedServer(early, nodes=1, events_per_chunk=400) as server:
        run_export(spark, journal, server)
        batches = len(list(journal.manifests()))
        done = compact(spark, journal)
        assert (done.generation, done.batches, done.events) == (1, batches, len(early))
        assert (done.files, done.deleted) == (3, 0)
        server.feed.append([event for event in two_days if event.seq >= SECOND_DAY_SEQ])
        run_export(spark, journal, server)
    return journal
