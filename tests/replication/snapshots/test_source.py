"""Outgoing snapshots are opened on demand, shared, and released by the last transfer."""

from collections import deque
from types import SimpleNamespace

import pytest

from taskraft_replication.core.errors import Compacted
from taskraft_replication.core.types import (
    ConfState,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    Snapshot,
    SnapshotMeta,
    Term,
)
from taskraft_replication.errors import SnapshotUnavailable
from taskraft_replication.snapshots.source import SnapshotSource


class View:
    def __init__(self):
        self.first = 1

    def first_index(self):
        return self.first

    def term(self, index):
        if index + 1 < self.first:
            raise Compacted
        return Term(3)


class Storage:
    """The parts of a group's storage that a snapshot source uses."""

    def __init__(self):
        self.view = View()
        state = ConfState(voters=(MemberId(1),))
        self.memberships = SimpleNamespace(floor=None, at=lambda index: state)


class Content:
    def __init__(self, index):
        self.index = LogIndex(index)
        self.is_closed = False

    def read(self, offset, size):
        return b""

    def close(self):
        self.is_closed = True


class Machine:
    def __init__(self):
        self.snapshot_index = LogIndex(100)
        self.opened = []
        self.is_damaged = False
        self.applied_index = LogIndex(100)

    def write_applied(self):
        self.snapshot_index = self.applied_index

    def open_snapshot(self):
        if self.is_damaged:
            raise SnapshotUnavailable("a damaged block")
        # The opened snapshot is newer than the announced one.
        content = Content(self.snapshot_index + 5)
        self.opened.append(content)
        return content


class Effects:
    def __init__(self):
        self.work = deque()
        self.sent = []

    def flush(self, work, then):
        self.work.append((work, then))

    def send_snapshot(self, message, meta, content):
        self.sent.append((message.to, meta.index, content))

    def settle(self):
        while self.work:
            work, then = self.work.popleft()
            then(work())


class Bench:
    def __init__(self):
        self.machine, self.storage, self.effects = Machine(), Storage(), Effects()
        self.refused = []
        self.source = SnapshotSource(self.machine, self.storage, self.effects, self.refused.append)

    def announce(self, member):
        """Announce a snapshot and send it, as the core does."""
        announced = self.source.current()
        message = Message(
            MessageKind.SNAPSHOT, MemberId(member), MemberId(1), Term(3), snapshot=announced
        )
        self.source.send(message)
        return announced.meta.index


def test_a_snapshot_may_be_newer_than_announced_and_never_older():
    bench = Bench()
    assert bench.announce(2) == 100
    assert bench.effects.sent == [], "the snapshot is opened outside the event loop"
    bench.effects.settle()
    (content,) = bench.machine.opened
    assert bench.effects.sent == [(2, 105, content)]


def test_followers_share_a_snapshot_and_the_last_one_releases_it():
    bench = Bench()
    bench.announce(2)
    bench.effects.settle()
    bench.machine.snapshot_index = LogIndex(900)
    assert bench.announce(3) == 105, "the announced snapshot is the open one"
    (content,) = bench.machine.opened
    assert [sent[2] for sent in bench.effects.sent] == [content, content]
    bench.source.ended(MemberId(2))
    bench.effects.settle()
    assert not content.is_closed
    bench.source.ended(MemberId(3))
    bench.effects.settle()
    assert content.is_closed
    assert bench.announce(2) == 900


def test_followers_share_a_snapshot_that_is_being_opened():
    bench = Bench()
    bench.announce(2)
    bench.machine.snapshot_index = LogIndex(103)
    assert bench.announce(3) == 100
    bench.effects.settle()
    assert len(bench.machine.opened) == 1
    assert [sent[0] for sent in bench.effects.sent] == [2, 3]


def test_a_follower_that_asks_again_gets_a_newer_snapshot():
    """A follower refuses a snapshot that does not name it.

    Two such followers could keep the snapshot open.
    """
    bench = Bench()
    bench.announce(2)
    bench.announce(3)
    bench.effects.settle()
    bench.source.ended(MemberId(2))
    bench.machine.snapshot_index = LogIndex(200)
    bench.announce(2)
    bench.effects.settle()
    assert [(to, index) for to, index, _ in bench.effects.sent] == [(2, 105), (3, 105), (2, 205)]
    assert bench.source.needed_from() == 105, "member 3 still receives the old one"
    bench.source.ended(MemberId(3))
    bench.effects.settle()
    assert [content.is_closed for content in bench.machine.opened] == [True, False]
    assert bench.source.needed_from() == 205


def test_the_log_behind_a_snapshot_is_needed_until_all_transfers_end():
    bench = Bench()
    assert bench.source.needed_from() is None
    bench.announce(2)
    assert bench.source.needed_from() == 100
    assert bench.storage.memberships.floor == 100, (
        "the membership of the snapshot is kept during the transfer"
    )
    bench.effects.settle()
    assert bench.source.needed_from() == 105
    assert bench.storage.memberships.floor is None
    bench.source.ended(MemberId(2))
    assert bench.source.needed_from() is None


def test_a_follower_gets_one_transfer_at_a_time_even_from_a_reelected_leader():
    bench = Bench()
    bench.announce(2)
    bench.announce(2)
    bench.effects.settle()
    bench.announce(2)
    bench.effects.settle()
    assert (len(bench.effects.sent), len(bench.machine.opened)) == (1, 1)
    bench.source.ended(MemberId(2))
    bench.effects.settle()
    bench.announce(2)
    bench.effects.settle()
    assert len(bench.effects.sent) == 2


def test_the_end_of_an_unknown_transfer_is_ignored():
    bench = Bench()
    bench.source.ended(MemberId(9))
    meta = SnapshotMeta(LogIndex(1), Term(1), ConfState())
    assert bench.source.current() != Snapshot(meta)


@pytest.mark.parametrize(("first", "opened"), [(106, [105]), (107, [105, 905])])
def test_a_state_that_was_replaced_while_it_was_opened_is_not_sent(first, opened):
    """This member lost the leadership, fell behind, and installed a snapshot."""
    bench = Bench()
    bench.announce(2)
    freeze, then = bench.effects.work.popleft()
    content = freeze()
    bench.storage.view.first = LogIndex(first)
    bench.machine.snapshot_index = LogIndex(900)
    then(content)
    bench.effects.settle()
    assert [each.index for each in bench.machine.opened] == opened
    assert [sent[1] for sent in bench.effects.sent] == opened[-1:]
    assert content.is_closed == (len(opened) == 2)


def test_a_damaged_state_is_sent_to_nobody():
    bench = Bench()
    bench.machine.is_damaged = True
    bench.announce(2)
    bench.announce(3)
    bench.effects.settle()
    assert (bench.refused, bench.effects.sent) == ([2, 3], [])
    assert bench.source.needed_from() is None
    assert bench.storage.memberships.floor is None
    bench.machine.is_damaged = False
    bench.announce(2)
    bench.effects.settle()
    assert [sent[0] for sent in bench.effects.sent] == [2]


def test_a_member_that_has_lost_its_state_is_told_why_it_gets_none():
    bench, told = Bench(), []
    bench.machine.is_damaged = True
    bench.source.open_apart(told.append)
    bench.effects.settle()
    bench.machine.is_damaged = False
    bench.storage.view.first = LogIndex(900)
    bench.source.open_apart(told.append)
    bench.effects.settle()
    assert [str(each) for each in told] == [
        "a damaged block",
        "the state changed while it was opened; retry",
    ]
    assert [content.is_closed for content in bench.machine.opened] == [True]


def test_a_member_that_has_lost_its_state_gets_all_applied_entries():
    """The log of the member may begin after the last written entry of each peer."""
    bench, told = Bench(), []
    bench.machine.applied_index = LogIndex(170)
    bench.source.open_apart(told.append)
    bench.effects.settle()
    assert [each.meta.index for each in told] == [175]
