"""Messages are flushed at once or after a delay."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from taskraft_replication.core.types import Entry, LogIndex, MemberId, Message, MessageKind, Term
from taskraft_replication.peers.send_batcher import DELAY_MS, LinkCapacity, SendBatcher
from taskraft_replication.peers.send_queue import PeerSendQueue


class Timers:
    """A clock that the test advances; it knows which timers were cancelled."""

    def __init__(self) -> None:
        self.armed: list[Callable[[], None]] = []

    def later(self, delay_ms: int, run: Callable[[], None]) -> Timers.Timer:
        assert delay_ms == DELAY_MS
        self.armed.append(run)
        return Timers.Timer(self, run)

    class Timer:
        def __init__(self, timers: Timers, run: Callable[[], None]) -> None:
            self._timers = timers
            self._run = run

        def cancel(self) -> None:
            if self._run in self._timers.armed:
                self._timers.armed.remove(self._run)


class Peer:
    """A batcher, and the number of its requests to send."""

    def __init__(self, messages_max: int = 100) -> None:
        self.timers = Timers()
        self.asked = 0
        self.room = 100
        self.capacity = LinkCapacity.ANYTHING
        self.batcher = SendBatcher(PeerSendQueue(messages_max), self._leave, self.timers.later)

    def _leave(self) -> None:
        self.asked += 1

    def put(self, *messages: Message) -> bool:
        taken = [self.batcher.put(each) for each in messages]
        self.batcher.flush_soon()
        return all(taken)

    def _capacity(self) -> LinkCapacity:
        return self.capacity if self.room > 0 else LinkCapacity.NOTHING

    def frames(self) -> list[list[Message]]:
        """Take as many frames as the connection has capacity for."""
        taken = []
        for frame in self.batcher.frames(self._capacity):
            self.room -= 1
            taken.append(frame)
        return taken


def news(index: int) -> Message:
    """Return an append that only reports a commit index, which is not urgent."""
    return Message(
        MessageKind.APPEND, MemberId(2), term=Term(1), index=LogIndex(index), commit=LogIndex(index)
    )


def append(index: int) -> Message:
    entries = (Entry(Term(1), LogIndex(index + 1), b"x"),)
    return Message(
        MessageKind.APPEND, MemberId(2), term=Term(1), index=LogIndex(index), entries=entries
    )


HEARTBEAT = Message(MessageKind.HEARTBEAT, MemberId(2), term=Term(1))


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.mark.parametrize("message", [HEARTBEAT, append(4)])
def test_an_urgent_message_is_sent_at_once(peer, message):
    assert peer.put(message)
    assert peer.asked == 1
    assert not peer.timers.armed
    assert peer.frames() == [[message]]
    assert len(peer.batcher) == 0


def test_messages_that_are_not_urgent_share_one_delay(peer):
    for index in (4, 5, 6):
        assert peer.put(news(index))
    assert peer.asked == 0
    (fire,) = peer.timers.armed
    fire()
    assert peer.asked == 1
    assert peer.frames() == [[news(6)]]
    assert not peer.timers.armed
    assert peer.put(news(7))
    assert len(peer.timers.armed) == 1, "the next delay begins"


def test_an_urgent_message_takes_delayed_messages_along(peer):
    peer.put(news(4))
    peer.put(HEARTBEAT)
    assert peer.asked == 1
    assert peer.frames() == [[HEARTBEAT, news(4)]]
    assert not peer.timers.armed


def test_entries_for_a_delayed_peer_are_not_urgent(peer):
    peer.batcher.may_delay = True
    peer.put(append(4))
    assert peer.asked == 0
    assert len(peer.timers.armed) == 1


def test_messages_of_one_turn_share_a_frame(peer):
    assert peer.put(append(4), append(5), HEARTBEAT)
    assert peer.asked == 1
    ((first, joined),) = peer.frames()
    assert [entry.index for entry in joined.entries] == [5, 6]
    assert first == HEARTBEAT


def test_after_the_delay_a_frame_waits_only_for_capacity(peer):
    peer.room = 0
    peer.put(news(4))
    (fire,) = peer.timers.armed
    fire()
    assert peer.frames() == []
    assert not peer.timers.armed
    peer.room = 1
    assert peer.frames() == [[news(4)]]


def test_messages_added_while_a_frame_is_written_form_the_next_frame(peer):
    peer.put(HEARTBEAT)
    frames = peer.batcher.frames(lambda: LinkCapacity.ANYTHING)
    assert next(frames) == [HEARTBEAT]
    peer.put(append(4))
    assert next(frames) == [append(4)]
    assert next(frames, None) is None


def test_flushing_an_empty_queue_does_nothing(peer):
    peer.batcher.flush_soon()
    assert peer.asked == 0
    assert not peer.timers.armed


def test_clearing_drops_the_messages_and_the_timer(peer):
    peer.put(news(4))
    peer.batcher.clear()
    assert len(peer.batcher) == 0
    assert not peer.timers.armed
    peer.put(news(4))
    assert len(peer.timers.armed) == 1


def test_a_refused_message_starts_no_delay():
    peer = Peer(messages_max=1)
    assert peer.put(append(4))
    assert not peer.put(news(4))
    assert not peer.timers.armed
    assert peer.frames() == [[append(4)]]


def test_only_small_messages_are_sent_beside_a_long_frame(peer):
    peer.capacity = LinkCapacity.SMALL
    peer.put(append(4), HEARTBEAT)
    assert peer.frames() == [[HEARTBEAT]]
    peer.put(HEARTBEAT)
    assert peer.frames() == [[HEARTBEAT]]
    peer.capacity = LinkCapacity.ANYTHING
    assert peer.frames() == [[append(4)]]


def test_dropped_bulk_messages_are_not_sent(peer):
    peer.put(append(4), HEARTBEAT)
    peer.batcher.drop_bulk()
    assert peer.frames() == [[HEARTBEAT]]
