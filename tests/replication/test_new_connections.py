"""Connections of unknown callers are limited in number and in time, and fairly by address."""

import asyncio

import pytest

from taskraft_replication.new_connections import NewConnections

HOUR = 3600


class Connection:
    """A transport from an address."""

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
