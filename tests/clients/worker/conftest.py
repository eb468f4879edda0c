"""Fixtures: an app on a cluster in memory with a virtual clock, and an app on a real node."""

import uuid

import pytest

from taskraft.worker import App


@pytest.fixture
def app(ataskraft):
    """Return an app whose time limits, leases and waits follow the clock of `ataskraft`."""
    return App("test", target="unused.example:7401", defaults={"tube": "worker"})


@pytest.fixture
def real_app(node):
    """Return an app on a real node: a thread that never ends stops the clock of the kit."""
    return App("test", target=node.target, defaults={"tube": f"worker-{uuid.uuid4()}"})
