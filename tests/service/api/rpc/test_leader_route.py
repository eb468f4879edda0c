"""The way to the leader: the wait for the next leader."""

import asyncio

import pytest

from taskraft_replication.core.types import NO_MEMBER
from tests.service.api.rpc.leader_bench import LEADER, NEXT_LEADER

pytestmark = pytest.mark.real_time


async def test_waiting_for_the_next_leader_ends_when_it_is_known(bench):
    bench.leads(LEADER)
    waiting = asyncio.ensure_future(bench.forwarder.route.next_leader(LEADER))
    await asyncio.sleep(0)
    bench.leads(NO_MEMBER)
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.leads(NEXT_LEADER, term=2)
    assert await waiting == bench.leadership.address != ""


async def test_waiting_for_the_next_leader_times_out_while_the_leader_stays(bench):
    bench.leads(LEADER)
    assert await bench.forwarder.route.next_leader(LEADER) == ""
