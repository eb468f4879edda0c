"""Channels to the leader, and their replacement."""

import grpc
import grpc.aio
import pytest

from taskraft_service.api.rpc.leader_channels import LeaderChannels
from taskraft_service.config.addresses import PeerAddress
from tools.free_addresses import free_addresses

pytestmark = pytest.mark.real_time

LEADER = PeerAddress(2, "n2", "n2.test:7402", "n2.test:7401")
READY = grpc.ChannelConnectivity.READY


@pytest.fixture
async def server_address():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_a_node_that_cannot_be_reached_is_tried_on_a_new_channel(monkeypatch, server_address):
    """A new channel resolves the name of the node, which may have another address now."""
    (refusing,) = free_addresses(1)
    addresses, opened = [refusing, server_address], []
    open_channel = grpc.aio.insecure_channel

    def moved(_address, **fields):
        opened.append(addresses[len(opened)])
        return open_channel(opened[-1], **fields)

    monkeypatch.setattr(grpc.aio, "insecure_channel", moved)
    channels = LeaderChannels(None)
    assert channels.ready_channel(LEADER) is None
    await channels.opened(LEADER)
    assert channels.ready_channel(LEADER) is None, "the first address refuses the connection"
    await channels.opened(LEADER)
    channel = channels.ready_channel(LEADER)
    assert channel is not None
    assert channel.get_state() is READY
    assert opened == addresses
    await channels.close()


async def test_one_attempt_at_a_time_serves_all_callers(monkeypatch, server_address):
    opened = []
    open_channel = grpc.aio.insecure_channel

    def counted(_address, **fields):
        opened.append(server_address)
        return open_channel(server_address, **fields)

    monkeypatch.setattr(grpc.aio, "insecure_channel", counted)
    channels = LeaderChannels(None)
    for _ in range(3):
        assert channels.ready_channel(LEADER) is None
    await channels.opened(LEADER)
    assert channels.ready_channel(LEADER) is channels.ready_channel(LEADER) is not None
    assert opened == [server_address]
    await channels.close()


async def test_a_lost_connection_is_replaced_by_one_to_the_new_address(monkeypatch):
    """The old address may drop packets, which would cost the connect timeout."""
    open_channel, opened, servers = grpc.aio.insecure_channel, [], []
    for _ in range(2):
        server = grpc.aio.server()
        servers.append((server, server.add_insecure_port("127.0.0.1:0")))
        await server.start()

    def moved(_address, **fields):
        opened.append(f"127.0.0.1:{servers[len(opened)][1]}")
        return open_channel(opened[-1], **fields)

    monkeypatch.setattr(grpc.aio, "insecure_channel", moved)
    channels = LeaderChannels(None)
    assert channels.ready_channel(LEADER) is None
    await channels.opened(LEADER)
    first = channels.ready_channel(LEADER)
    await servers[0][0].stop(None)
    await first.wait_for_state_change(READY)
    assert channels.ready_channel(LEADER) is None
    await channels.opened(LEADER)
    assert channels.ready_channel(LEADER) is not first
    assert len(opened) == 2
    await channels.close()
    await servers[1][0].stop(None)
