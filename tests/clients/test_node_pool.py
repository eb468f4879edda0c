"""Channels of the client to the nodes, and their replacement."""

import grpc
import pytest

from taskraft import _node_pool
from taskraft._node_pool import CHANNEL_SECONDS_MIN, NodePool, is_disconnected
from taskraft._node_selector import NodeSelector
from tools.free_addresses import free_addresses

State = grpc.ChannelConnectivity


@pytest.fixture
async def pool():
    (address,) = free_addresses(1)
    pool = NodePool(NodeSelector([address]), None)
    yield pool
    await pool.close()


async def disconnected(pool):
    """Return the stubs of a node whose connection was refused."""
    node = pool.next_node()
    while (state := node.channel.get_state(try_to_connect=True)) is not State.TRANSIENT_FAILURE:
        await node.channel.wait_for_state_change(state)
    return node


@pytest.mark.real_time
async def test_a_channel_that_cannot_connect_is_replaced(pool, monkeypatch):
    """A new channel resolves the name of the node, which may have another address now."""
    node = await disconnected(pool)
    monkeypatch.setattr(_node_pool, "CHANNEL_SECONDS_MIN", 0.0)
    replaced = pool.next_node()
    monkeypatch.undo()
    assert replaced is not node
    assert pool.next_node() is replaced


@pytest.mark.real_time
async def test_an_idle_channel_is_replaced_unless_it_was_just_chosen(pool, monkeypatch):
    """A connection that was lost leaves an idle channel with the old address of the node."""
    node = pool.next_node()
    assert node.channel.get_state() is State.IDLE
    assert pool.next_node() is node
    monkeypatch.setattr(_node_pool, "CHANNEL_SECONDS_MIN", 0.0)
    assert pool.next_node() is not node


@pytest.mark.real_time
async def test_many_long_calls_leave_the_channel_of_short_calls_free(pool, monkeypatch):
    monkeypatch.setattr(_node_pool, "LONG_CALLS_PER_CHANNEL", 2)
    short = pool.next_node()
    with pool.long_call() as first, pool.long_call() as second, pool.long_call() as third:
        assert pool.next_node(first) is pool.next_node(second) is short
        assert pool.next_node(third) is not short
        assert pool.next_node(third) is pool.next_node(third)
    with pool.long_call() as again:
        assert again == 0


LONG = 10 * CHANNEL_SECONDS_MIN


@pytest.mark.parametrize(
    ("state", "opened_seconds", "unused_seconds", "is_replaced"),
    [
        (State.TRANSIENT_FAILURE, LONG, 0.0, True),
        (State.TRANSIENT_FAILURE, 0.0, 0.0, False),
        (State.IDLE, LONG, LONG, True),
        (State.IDLE, LONG, 0.0, False),
        (State.CONNECTING, LONG, LONG, False),
        (State.READY, LONG, LONG, False),
    ],
)
def test_only_channels_without_connection_and_calls_are_replaced(
    state, opened_seconds, unused_seconds, is_replaced
):
    assert is_disconnected(state, opened_seconds, unused_seconds) is is_replaced
