"""Give tests a fake cluster of one node or of three."""

import pytest

from tests.clients.fake_cluster import FakeCluster


@pytest.fixture
def cluster():
    with FakeCluster() as one:
        yield one


@pytest.fixture
def three():
    with FakeCluster(3) as nodes:
        yield nodes


@pytest.fixture(autouse=True)
def no_target(monkeypatch):
    monkeypatch.delenv("TASKRAFT_TARGET", raising=False)
