"""Run each test of this folder twice: on the cluster in memory, and on a real node.

The kit cannot drift from the server, because both must pass the same tests.
"""

import uuid

import pytest

from taskraft.testing import Kit


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.cluster)])
def taskraft(request):
    """Return a kit; the real node is emptied for each test."""
    real = {}
    if request.param == "real":
        real["cluster"] = request.getfixturevalue("taskraft_cluster")
    with Kit(**real) as kit:
        yield kit


@pytest.fixture
def client(taskraft):
    return taskraft.client


@pytest.fixture
def tube(client):
    name = f"work-{uuid.uuid4()}"  # the change feed keeps events of dropped tubes
    client.create_tube(name)
    return client.tube(name)
