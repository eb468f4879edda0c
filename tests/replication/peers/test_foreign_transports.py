"""Connections work on an event loop whose transports are no subclasses of asyncio.Transport."""

import asyncio

import pytest

from taskraft_replication.peers.byte_forwarder import UNSENT_BYTES_MAX, ByteForwarder
from taskraft_replication.peers.frame_connection import FrameReceiver
from taskraft_replication.peers.peer_port import _NewConnection


class ForeignTransport:
    """A transport like those of uvloop, which derive from no class of asyncio."""

    high = None

    def set_write_buffer_limits(self, high=None, low=None):
        self.high = high


class Port:
    """Keeps the transports that have arrived."""

    def __init__(self):
        self.transports = []

    def arrived(self, transport):
        self.transports.append(transport)


@pytest.fixture
def transport():
    foreign = ForeignTransport()
    assert not isinstance(foreign, asyncio.BaseTransport)
    return foreign


def test_a_new_connection_of_a_foreign_transport_arrives(transport):
    port = Port()
    _NewConnection(port).connection_made(transport)
    assert port.transports == [transport]


def test_a_forwarder_limits_a_foreign_transport(transport):
    ByteForwarder(None, lambda: None).connection_made(transport)
    assert transport.high == UNSENT_BYTES_MAX


def test_a_frame_connection_keeps_a_foreign_transport(transport):
    connection = FrameReceiver(None, lambda: None, lambda: None)
    connection.connection_made(transport)
    assert connection._transport is transport
