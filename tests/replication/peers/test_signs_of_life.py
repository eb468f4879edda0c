"""Bytes of an unfinished frame, and the answers to them, show which member is alive."""

import pytest

from taskraft_replication.core.types import Entry, LogIndex, MemberId, Message, MessageKind, Term
from tests.replication.remembering_member import beat

pytestmark = pytest.mark.real_time


def long_append(size: int, term: int = 1) -> Message:
    entry = Entry(Term(term), LogIndex(1), bytes(size))
    return Message(MessageKind.APPEND, MemberId(2), MemberId(1), Term(term), entries=(entry,))


async def test_bytes_of_the_leader_and_the_answers_to_them_are_signs_of_life(pair):
    one, two = pair
    one.peers.set_leading_term(Term(1))
    one.peers.send([long_append(8 << 20)])
    await two.until(lambda: two.received)
    assert two.received == [long_append(8 << 20)]
    assert {*two.signs} == {("leader", MemberId(1), Term(1))}
    two.peers.send_alive(MemberId(1), Term(1))
    await one.until(lambda: one.signs)
    assert one.signs == [("follower", MemberId(2), Term(1))]
    two.peers.send_alive(MemberId(9), Term(1))  # No peer listens at this address.


async def test_a_deposed_leader_drops_its_appends(pair):
    one, two = pair
    one.peers.send([beat(1)])
    await two.until(lambda: two.received)
    one.peers.set_leading_term(Term(1))
    one.peers.send([long_append(64 << 20)])
    await two.until(lambda: two.signs)
    one.peers.send([long_append(1)])
    one.peers.set_leading_term(Term(0))
    one.peers.send([beat(2), long_append(2, term=3)])
    await two.until(lambda: len(two.received) == 3)
    assert two.received == [beat(1), beat(2), long_append(2, term=3)]
    seen = len(two.signs)
    one.peers.send([long_append(8 << 20)])
    await two.until(lambda: len(two.received) == 4)
    assert len(two.signs) == seen, "a deposed leader sends no appends"


async def test_a_link_that_opens_later_knows_the_term(pair):
    one, two = pair
    one.peers.set_leading_term(Term(4))
    one.peers.renew()
    one.peers.send([long_append(8 << 20, term=4)])
    await two.until(lambda: two.received)
    assert ("leader", MemberId(1), Term(4)) in two.signs
