"""Beacons are sent with Raft messages over real connections."""

from __future__ import annotations

import asyncio

import pytest

from taskraft_replication.core.types import LogIndex, MemberId, Message, MessageKind, Term

pytestmark = pytest.mark.real_time

BEAT, REPLY, VOTE = (
    Message(kind, MemberId(2), MemberId(1), Term(1), commit=LogIndex(1))
    for kind in (MessageKind.HEARTBEAT, MessageKind.HEARTBEAT_REPLY, MessageKind.VOTE)
)


async def test_each_frame_with_a_heartbeat_has_a_beacon(pair):
    one, two = pair
    one.beacon = b"first"
    one.peers.send([BEAT])
    await two.until(lambda: len(two.received) == 1)
    one.beacon = b"second"
    one.peers.send([VOTE, REPLY])
    await two.until(lambda: len(two.received) == 3)
    one.peers.send([VOTE])
    await two.until(lambda: len(two.received) == 4)
    assert two.beacons == [(1, b"first", 0), (1, b"second", 1)], "before the messages of the frame"


async def test_a_member_without_beacons_differs_from_a_frame_without_a_heartbeat(pair):
    one, two = pair
    one.peers.send([BEAT])
    await two.until(lambda: two.received)
    assert two.beacons == [(1, b"", 0)]


async def test_a_malformed_beacon_ends_the_stream_before_its_messages_are_processed(pair):
    one, two = pair
    one.beacon = two.bad_beacon = b"bad"
    one.peers.send([BEAT])
    await two.until(lambda: two.gone)
    assert not two.received
    one.beacon = b"good"
    await one.until(lambda: one.lost)
    while not two.received:
        one.peers.send([BEAT])
        await asyncio.sleep(0)
    assert two.beacons[0][:2] == (1, b"good")
