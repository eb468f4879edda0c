"""The way to the leader: the wait for the next leader."""

import asyncio
from itertools import pairwise

import pytest

from taskraft.v1 import error_pb2
from taskraft_replication.core.types import NO_MEMBER, RaftRole
from taskraft_service.api.rpc.calls_at_leader import ThisNodeLeads
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.turns import TURNS_MAX
from tests.service.api.rpc.leader_bench import LEADER, ME, NEXT_LEADER
from tests.turns import SECONDS_MAX, turns_until

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


async def done_in_turn(calls):
    """Return the greatest number of calls that end in one turn of the event loop."""
    counts = [0]
    async with asyncio.timeout(SECONDS_MAX):
        while counts[-1] < len(calls):
            await asyncio.sleep(0)
            counts.append(sum(call.done() for call in calls))
    return max(after - before for before, after in pairwise(counts))


@pytest.mark.parametrize("is_connected", [True, False])
async def test_calls_that_waited_for_the_same_leader_continue_in_turns(bench, is_connected):
    if is_connected:
        bench.leads(LEADER)
        await bench.call()
        bench.leads(NO_MEMBER, term=2)
    calls = [asyncio.ensure_future(bench.forwarder.route.channel(None)) for _ in range(50)]
    await asyncio.sleep(0)
    bench.leads(LEADER, term=3)
    assert await done_in_turn(calls) <= TURNS_MAX
    assert {call.result()[1] for call in calls} == {LEADER}


async def test_calls_that_waited_for_this_node_to_lead_continue_in_turns(bench):
    calls = [asyncio.ensure_future(bench.forwarder.route.channel(None)) for _ in range(50)]
    await asyncio.sleep(0)
    bench.leads(ME, RaftRole.LEADER)
    assert await done_in_turn(calls) <= TURNS_MAX
    assert {type(call.exception()) for call in calls} == {ThisNodeLeads}


async def test_a_known_leader_that_cannot_be_reached_counts_as_no_leader(bench):
    address = "127.0.0.1:1"  # nothing listens on this port
    bench.leadership._members[LEADER] = PeerAddress(LEADER, "n2", "p:1", address)
    bench.leads(LEADER)
    async with asyncio.timeout(SECONDS_MAX):
        with pytest.raises(CallRefused) as caught:
            await bench.call()
    assert caught.value.reason == error_pb2.Error.NO_LEADER
    bench.leads(NO_MEMBER, term=2)


async def test_idempotent_calls_of_a_lost_leader_are_sent_again_in_turns(bench):
    bench.leads(LEADER)
    bench.upstream.answers = [asyncio.Future() for _ in range(50)]
    calls = [asyncio.ensure_future(bench.call(repeatable=True)) for _ in range(50)]
    await turns_until(lambda: len(bench.upstream.calls) == 50)
    sent, channel = [], bench.forwarder.route.channel

    async def counted(deadline):
        found = await channel(deadline)
        sent.append(found)
        return found

    bench.forwarder.route.channel = counted
    bench.leads(NEXT_LEADER, term=2)
    counts = [0]
    async with asyncio.timeout(SECONDS_MAX):
        while len(sent) < 50:
            await asyncio.sleep(0)
            counts.append(len(sent))
    assert max(after - before for before, after in pairwise(counts)) <= TURNS_MAX
    assert set(await asyncio.gather(*calls)) == {b"raw"}
