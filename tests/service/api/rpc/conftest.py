"""The bench of a forwarder and its leader."""

import pytest

from tests.service.api.rpc.leader_bench import leader_bench


@pytest.fixture
async def bench():
    async with leader_bench() as one:
        yield one
