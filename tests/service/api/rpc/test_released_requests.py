"""A put that waits for its entry holds its content twice, not three times."""

import asyncio
import weakref

import pytest

from taskraft_service.api.rpc import methods
from taskraft_service.api.rpc.methods import UnaryCall
from tests.service.conftest import create, put

pytestmark = pytest.mark.real_time


class Recorded(UnaryCall):
    __slots__ = ("__weakref__",)


@pytest.fixture
def waiting(node, monkeypatch):
    """Return the sizes of the parsed requests while their commands wait for an entry."""
    calls, sizes = [], []

    def recorded(*arguments):
        call = Recorded(*arguments)
        calls.append(weakref.ref(call))
        return call

    def look(reference):
        call = reference()
        sizes.append(0 if call is None else call.request.ByteSize())

    proposer = node.server.components.proposer
    submit = proposer.submit

    def submit_recorded(encoded, deadline=None):
        if calls:
            # The call waits when the event loop runs this.
            asyncio.get_running_loop().call_soon(look, calls[-1])
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
