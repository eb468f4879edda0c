"""Queued messages are sent at once, sent later, merged or dropped."""

from __future__ import annotations

import pytest

from taskraft_replication.beacons import BEACON_BYTES_MAX
from taskraft_replication.core.config import MESSAGE_BYTES_MAX
from taskraft_replication.core.types import Entry, LogIndex, MemberId, Message, MessageKind, Term
from taskraft_replication.peers.codec import encode_frame
from taskraft_replication.peers.pieces import PIECE_BYTES
from taskraft_replication.peers.send_queue import (
    DELAYED_BYTES_MAX,
    FRAME_BYTES_MAX,
    QUEUE_BYTES_MAX,
    QUEUE_MESSAGES_MAX,
    SHARED_BYTES_MAX,
    SMALL_MESSAGES_MAX,
    PeerSendQueue,
)


def message(kind: MessageKind, index: int = 0, **fields: object) -> Message:
    values = {"term": Term(2), **fields}
    return Message(kind, MemberId(2), MemberId(1), index=LogIndex(index), **values)


def append(
    index: int, size: int = 0, commit: int = 0, term: int = 2, count: int = 1, log_term: int = 2
) -> Message:
    indexes = range(index + 1, index + 1 + count) if size else ()
    entries = tuple(Entry(Term(term), LogIndex(each), bytes(size)) for each in indexes)
    return message(
        MessageKind.APPEND,
        index,
        entries=entries,
        commit=LogIndex(commit),
        term=Term(term),
        log_term=Term(log_term),
    )


def ack(index: int, **fields: object) -> Message:
    return message(MessageKind.APPEND_REPLY, index, **fields)


HEARTBEAT = message(MessageKind.HEARTBEAT)


def outbox_with(*messages: Message) -> PeerSendQueue:
    outbox = PeerSendQueue()
    for each in messages:
        assert outbox.put(each)
    return outbox


def drained(outbox: PeerSendQueue) -> list[Message]:
    """Return the messages of all frames."""
    messages = []
    while outbox:
        messages += outbox.take_frame()
    return messages


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (append(4, commit=3), append(4, commit=5)),
        (append(4, commit=4), append(4, size=9, commit=4)),
        (append(4, commit=4), append(6, size=9, commit=5)),
        (ack(4), ack(9)),
        (ack(4), ack(4)),
    ],
)
def test_a_message_that_a_later_one_covers_is_dropped(first, then):
    assert outbox_with(first, then).take_frame() == [then]


@pytest.mark.parametrize(
    ("first", "then", "both"),
    [
        (
            append(4, size=1, commit=3, log_term=1),
            append(5, size=1, commit=4),
            append(4, size=1, commit=4, count=2, log_term=1),
        ),
        (append(4, size=1, commit=3), append(5, commit=5), append(4, size=1, commit=5)),
        (
            append(4, size=1, count=2),
            append(6, size=1, count=3),
            append(4, size=1, count=5),
        ),
    ],
)
def test_consecutive_appends_are_merged(first, then, both):
    outbox = outbox_with(first, then)
    assert len(outbox) == 1
    assert outbox.take_frame() == [both]


def test_merged_appends_stay_within_the_size_of_a_message():
    third = MESSAGE_BYTES_MAX // 3
    outbox = outbox_with(*[append(index, size=third) for index in range(7)])
    assert [len(each.entries) for each in drained(outbox)] == [3, 3, 1]
    # A message that was already taken is not merged.
    assert outbox.put(append(7, size=1))
    assert outbox.take_frame() == [append(7, size=1)]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (append(4, size=1), append(4, size=1)),
        (append(4, size=1), append(6, size=1)),
        (append(4, size=1), append(4)),
        (append(4, size=1, commit=3), append(5, size=1, commit=2)),
        (append(4, size=1, term=2), append(5, size=1, term=3)),
        (append(4, size=MESSAGE_BYTES_MAX), append(5, size=1)),
        (append(4, commit=5), append(4, commit=4)),
        (append(5, commit=4), append(4, commit=4)),
        (append(4, term=2), append(4, term=3)),
        (ack(4), ack(9, reject=True)),
        (ack(4, reject=True), ack(9)),
        (ack(9), ack(4)),
        (ack(4, term=Term(2)), ack(9, term=Term(3))),
        (HEARTBEAT, HEARTBEAT),
        (HEARTBEAT, append(4)),
    ],
)
def test_other_messages_are_sent_separately_and_in_order(first, then):
    assert drained(outbox_with(first, then)) == [first, then]


@pytest.mark.parametrize("one", [append(4, size=1), ack(4), ack(4, reject=True), HEARTBEAT])
def test_messages_that_a_peer_waits_for_are_urgent(one):
    assert outbox_with(one).is_urgent


def test_a_commit_index_and_a_repeated_acknowledgement_are_not_urgent():
    outbox = outbox_with(ack(4))
    assert outbox.take_frame() == [ack(4)]
    assert not outbox.is_urgent
    for again in (ack(4), ack(3), append(4, commit=4)):
        assert outbox.put(again)
        assert not outbox.is_urgent
    assert outbox.put(ack(5))
    assert outbox.is_urgent


def test_entries_for_a_delayed_peer_become_urgent_above_a_size():
    outbox = PeerSendQueue()
    assert outbox.put(append(4, DELAYED_BYTES_MAX), may_delay=True)
    assert not outbox.is_urgent
    assert outbox.put(append(5, size=1), may_delay=True)
    assert outbox.is_urgent
    assert [len(each.entries) for each in outbox.take_frame()] == [2]


def test_other_messages_to_a_delayed_peer_are_urgent_and_take_entries_along():
    outbox = PeerSendQueue()
    assert outbox.put(append(4, size=1), may_delay=True)
    assert outbox.put(HEARTBEAT, may_delay=True)
    assert outbox.is_urgent
    assert outbox.take_frame() == [HEARTBEAT, append(4, size=1)]


def test_an_acknowledgement_is_urgent_again_after_a_break():
    outbox = outbox_with(ack(4))
    outbox.clear()
    assert len(outbox) == 0
    assert outbox.put(ack(4))
    assert outbox.is_urgent


def test_a_frame_is_limited_but_holds_at_least_one_message():
    half = FRAME_BYTES_MAX // 2
    outbox = outbox_with(append(1, 2 * FRAME_BYTES_MAX), append(2, half), append(4, half))
    assert [len(outbox.take_frame()) for _ in range(2)] == [1, 2]
    assert outbox.take_frame() == []
    assert not outbox.is_urgent


SMALL = [
    message(kind)
    for kind in MessageKind
    if kind.value.startswith(("vote", "pre_vote", "heartbeat", "read_index"))
] + [ack(1, reject=True), message(MessageKind.TIMEOUT_NOW), message(MessageKind.TRANSFER_LEADER)]


@pytest.mark.parametrize("small", SMALL, ids=lambda small: small.kind.value)
def test_a_small_message_overtakes_bulk_messages(small):
    bulk = [append(9 * each, SHARED_BYTES_MAX) for each in range(3)]
    proposal = message(MessageKind.PROPOSE, term=Term(0), entries=append(1, size=1).entries)
    outbox = outbox_with(*bulk, proposal, small)
    assert outbox.has_small
    assert outbox.take_frame() == [small]
    assert not outbox.has_small
    assert outbox.is_urgent
    assert outbox.take_frame() == [*bulk, proposal]


def test_a_small_message_is_accepted_although_bulk_messages_fill_the_queue():
    """Without heartbeats, the leader would lose its followers whenever entries are slow."""
    outbox = outbox_with(append(1, 64 << 20))
    assert not outbox.put(append(2, 1))
    assert outbox.put(HEARTBEAT)
    outbox = PeerSendQueue(messages_max=2)
    for each in (append(1, 1), append(5, 1), HEARTBEAT, HEARTBEAT):
        assert outbox.put(each)
    assert not outbox.put(HEARTBEAT)
    assert not outbox.put(append(9, 1))


def test_bulk_messages_share_a_frame_with_small_ones_up_to_a_limit():
    for size, frames in ((SHARED_BYTES_MAX, 1), (SHARED_BYTES_MAX + 1, 2)):
        outbox = outbox_with(append(4, size=size), HEARTBEAT)
        for _ in range(frames):
            assert outbox
            outbox.take_frame()
        assert not outbox


def test_a_frame_of_small_messages_fits_in_one_piece():
    largest = 1 << 62
    kinds = (MessageKind.VOTE_REPLY, MessageKind.HEARTBEAT)
    outbox = outbox_with(
        *[
            Message(
                kinds[number % 2],
                MemberId(largest),
                MemberId(largest),
                Term(largest),
                Term(largest),
                LogIndex(largest),
                commit=LogIndex(largest),
                reject=True,
                reject_hint=LogIndex(largest),
                context=bytes(16),
            )
            for number in range(SMALL_MESSAGES_MAX + 1)
        ],
        append(1, size=1),
    )
    taken = [outbox.take_frame(), outbox.take_frame()]
    assert [len(frame) for frame in taken] == [SMALL_MESSAGES_MAX, 2]
    beacon = bytes(BEACON_BYTES_MAX)
    assert sum(map(len, encode_frame(taken[0], lambda: beacon))) <= PIECE_BYTES
    assert not outbox.is_urgent


def test_dropping_bulk_messages_keeps_the_small_ones():
    outbox = outbox_with(append(1, QUEUE_BYTES_MAX), HEARTBEAT, append(2))
    outbox.drop_bulk()
    assert outbox.is_urgent
    assert outbox.put(append(1, QUEUE_BYTES_MAX))
    outbox.drop_bulk()
    assert outbox.take_frame() == [HEARTBEAT]
    assert outbox.put(append(1, 1))
    outbox.drop_bulk()
    assert not outbox.is_urgent
    assert not outbox


def test_a_message_beyond_the_limits_is_refused_until_a_frame_is_taken():
    outbox = outbox_with(*[append(1, QUEUE_BYTES_MAX // 4)] * 4)
    assert not outbox.put(append(9, 1))
    outbox.take_frame()
    assert outbox.put(append(9, 1))
    small = PeerSendQueue(bytes_max=10)
    for _ in range(2):
        assert small.put(append(1, size=10))
        assert not small.put(append(2, size=1))
        small.take_frame()
    outbox = outbox_with(*[HEARTBEAT] * QUEUE_MESSAGES_MAX)
    assert not outbox.put(HEARTBEAT)


def test_an_oversized_message_is_accepted_when_no_other_is_queued():
    """A refused message would be sent again and again, and the peer would never catch up."""
    small = PeerSendQueue(bytes_max=10)
    small.put(HEARTBEAT)
    assert small.put(append(1, size=11))
    assert not small.put(append(2, size=1))
    assert len(small.take_frame()) == 2
    assert small.put(append(2, size=1))
    assert not small.put(append(3, size=11))


def test_other_messages_are_urgent_after_any_acknowledgement():
    outbox = outbox_with(ack(9))
    for urgent in (HEARTBEAT, ack(3, reject=True), message(MessageKind.READ_INDEX, term=Term(0))):
        outbox.take_frame()
        outbox.put(urgent)
        assert outbox.is_urgent


def test_the_first_acknowledgement_of_a_term_is_urgent():
    outbox = outbox_with(ack(0, term=Term(1)))
    assert outbox.is_urgent
    outbox.clear()
    outbox.put(ack(0, term=Term(1)))
    assert outbox.is_urgent


def test_a_message_larger_than_a_frame_leaves_no_urgency_behind():
    outbox = outbox_with(append(4, size=FRAME_BYTES_MAX + 1))
    assert len(outbox.take_frame()) == 1
    assert not outbox.is_urgent
    assert len(outbox) == 0


@pytest.mark.parametrize(("more", "frames"), [(0, [4]), (1, [3, 1])])
def test_a_frame_is_filled_to_its_exact_limit(more, frames):
    quarter = FRAME_BYTES_MAX // 4
    sizes = [quarter, quarter, quarter, quarter + more]
    outbox = outbox_with(*(append(10 * each, size=size) for each, size in enumerate(sizes)))
    taken = []
    while outbox:
        taken.append(len(outbox.take_frame()))
    assert taken == frames


@pytest.mark.parametrize(("more", "left"), [(0, 1), (1, 2)])
def test_appends_are_merged_up_to_the_exact_limit_of_a_message(more, left):
    half = MESSAGE_BYTES_MAX // 2
    outbox = outbox_with(append(4, size=half), append(5, size=half + more))
    assert len(outbox) == left
