"""Fixtures: one Spark session for all tests, and a fake cluster with a feed for each test."""

import pytest

from taskraft_pipeline import java
from taskraft_pipeline.spark_session import spark_session
from tests.pipeline.feed_server import FeedServer
from tests.pipeline.history import history

TASKS = 1_500


@pytest.fixture(scope="session")
def spark():
    """Return a Spark session; without Java the test is skipped."""
    if not java.is_sufficient():
        pytest.skip(java.HINT)
    with spark_session("tests", "local[2,3]", is_brief=True) as started:
        yield started


@pytest.fixture(scope="session")
def events():
    """Return a history: some thousand events of three tubes in four partitions."""
    return history(TASKS, seed=7)


@pytest.fixture
def cluster(events):
    """Return three nodes that serve the history."""
    with FeedServer(events, nodes=3, events_per_chunk=400) as server:
        yield server
