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
    """As much of a group's storage as a source looks at."""

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

    def open_snapshot(self):
        # By now more is collected than when the snapshot was announced.
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
        self.source = SnapshotSource(self.machine, self.storage, self.effects)

    def announce(self, member):
        """Do what the core does: ask what a snapshot would be, and send that."""
        announced = self.source.current()
        message = Message(
            MessageKind.SNAPSHOT, MemberId(member), MemberId(1), Term(3), snapshot=announced
        )
        self.source.send(message)
        return announced.meta.index


def test_a_snapshot_may_be_newer_than_announced_and_never_older():
    bench = Bench()
    assert bench.announce(2) == 100
    assert bench.effects.sent == [], "it is opened beside the loop"
    bench.effects.settle()
    (content,) = bench.machine.opened
    assert bench.effects.sent == [(2, 105, content)]


def test_followers_share_a_snapshot_and_the_last_one_releases_it():
    bench = Bench()
    bench.announce(2)
    bench.effects.settle()
    bench.machine.snapshot_index = LogIndex(900)
    assert bench.announce(3) == 105, "what is announced is what will be sent"
    (content,) = bench.machine.opened
    assert [sent[2] for sent in bench.effects.sent] == [content, content]
    bench.source.ended(MemberId(2))
    bench.effects.settle()
    assert not content.is_closed
    bench.source.ended(MemberId(3))
    bench.effects.settle()
    assert content.is_closed
    assert bench.announce(2) == 900


def test_followers_that_ask_while_one_is_being_opened_get_that_one():
    bench = Bench()
    bench.announce(2)
    bench.machine.snapshot_index = LogIndex(103)
    assert bench.announce(3) == 100
    bench.effects.settle()
    assert len(bench.machine.opened) == 1
    assert [sent[0] for sent in bench.effects.sent] == [2, 3]


def test_who_asks_again_gets_a_newer_one():
    """It may have refused the first since that does not name it; two such could keep it alive."""
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


def test_the_log_behind_a_snapshot_is_needed_until_all_have_it():
    bench = Bench()
    assert bench.source.needed_from() is None
    bench.announce(2)
    assert bench.source.needed_from() == 100
    assert bench.storage.memberships.floor == 100, "its membership must not be forgotten meanwhile"
    bench.effects.settle()
    assert bench.source.needed_from() == 105
    assert bench.storage.memberships.floor is None
    bench.source.ended(MemberId(2))
    assert bench.source.needed_from() is None


def test_a_follower_gets_one_transfer_at_a_time_also_from_a_leader_that_was_elected_again():
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


def test_an_end_that_belongs_to_nothing_is_ignored():
    bench = Bench()
    bench.source.ended(MemberId(9))
    meta = SnapshotMeta(LogIndex(1), Term(1), ConfState())
    assert bench.source.current() != Snapshot(meta)


@pytest.mark.parametrize(("first", "opened"), [(106, [105]), (107, [105, 905])])
def test_a_state_that_was_replaced_while_it_was_frozen_is_not_sent(first, opened):
    """This member lost the leadership, fell behind, and got a snapshot itself."""
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
