"""Fixtures: an app on the real node, with a tube of its own."""

import uuid

import pytest

from taskraft.worker import App


@pytest.fixture
def app(node):
    return App("test", target=node.target, defaults={"tube": f"worker-{uuid.uuid4()}"})
