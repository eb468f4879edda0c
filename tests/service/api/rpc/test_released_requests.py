"""A put that waits for its entry holds its content twice, not three times."""

import pytest

from taskraft_service.api.rpc import methods
from taskraft_service.api.rpc.methods import UnaryCall
from tests.service.conftest import create, put

pytestmark = pytest.mark.real_time


@pytest.fixture
def waiting(node, monkeypatch):
    """Return the sizes of the parsed requests while their commands wait for an entry."""
    calls, sizes = [], []

    def recorded(*arguments):
        calls.append(UnaryCall(*arguments))
        return calls[-1]

    proposer = node.server.components.proposer
    submit = proposer.submit

    def submit_recorded(encoded, deadline=None):
        if calls:
            sizes.append(calls[-1].request.ByteSize())
        return submit(encoded, deadline)

    monkeypatch.setattr(methods, "UnaryCall", recorded)
    monkeypatch.setattr(proposer, "submit", submit_recorded)
    return sizes


async def test_a_put_releases_its_parsed_request_before_it_waits(node, waiting):
    await create(node)
    waiting.clear()
    done = await put(node, b"x" * 1_000)
    assert waiting == [0]
    assert list(done.task_ids) == [1]
