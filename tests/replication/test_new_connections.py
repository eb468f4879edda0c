"""Connections without a known purpose are limited in number and in time, fairly by address."""

import asyncio
import socket
from pathlib import Path

import pytest

from taskraft_replication.new_connections import (
    ACCEPTS_PER_TURN,
    NewConnections,
    lengthen_backlog,
)

HOUR = 3600
BURST = 120
"""Fewer connections than the kernel keeps until a port accepts them."""
TURNS_MAX = 6
"""Turns of the event loop from the acceptance of a connection until it is closed."""


class Connection:
    """A transport whose peer has a given address."""

    def __init__(self, address="a"):
        self.address = address
        self.is_closed = asyncio.Event()

    def get_extra_info(self, name):
        assert name == "peername"
        return (self.address, 1) if self.address else None

    def abort(self):
        self.is_closed.set()


def closed(connections):
    return [place for place, each in enumerate(connections) if each.is_closed.is_set()]


async def test_one_connection_too_many_closes_the_oldest():
    new = NewConnections(3, HOUR)
    connections = [Connection() for _ in range(5)]
    for each in connections:
        new.add(each)
    assert closed(connections) == [0, 1]
    assert len(new) == 3


async def test_an_address_with_many_connections_does_not_keep_others_out():
    new = NewConnections(4, HOUR)
    early, crowd, late = Connection("b"), [Connection("a") for _ in range(9)], Connection("c")
    for each in (early, *crowd, late):
        new.add(each)
    assert closed([early, late]) == []
    assert len(new) == 4
    assert len(closed(crowd)) == 7


async def test_a_connection_with_a_purpose_does_not_count_and_is_not_closed():
    new = NewConnections(2, HOUR)
    known = [Connection() for _ in range(5)]
    for each in known:
        new.add(each)
        new.remove(each)
        new.remove(each)
    assert len(new) == 0
    assert not closed(known)
    assert not new._by_address


@pytest.mark.parametrize("address", ["a", ""])
async def test_a_connection_without_a_purpose_is_closed_in_the_end(address):
    new = NewConnections(2, 0)
    idle, known = Connection(address), Connection(address)
    new.add(idle)
    new.add(known)
    new.remove(known)
    async with asyncio.timeout(20):
        await idle.is_closed.wait()
    assert not known.is_closed.is_set()
    assert len(new) == 0


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


class ClosingPort(asyncio.Protocol):
    """A port without room for any connection."""

    closed = 0

    def connection_made(self, transport):
        transport.abort()

    def connection_lost(self, _error):
        ClosingPort.closed += 1


@pytest.mark.real_time
async def test_a_burst_of_connections_takes_few_descriptors_before_the_port_closes_them():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(ClosingPort, "127.0.0.1", 0, backlog=ACCEPTS_PER_TURN)
    lengthen_backlog(server)
    address = server.sockets[0].getsockname()
    # The kernel completes these connections; the port has not run yet.
    burst = [socket.create_connection(address, 20) for _ in range(BURST)]
    before, most = descriptors(), 0
    async with asyncio.timeout(20):
        while ClosingPort.closed < BURST:
            await asyncio.sleep(0)
            most = max(most, descriptors() - before)
    for one in burst:
        one.close()
    server.close()
    assert 0 < most <= ACCEPTS_PER_TURN * TURNS_MAX
