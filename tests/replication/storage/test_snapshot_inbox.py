"""The content of a snapshot arrives complete, in order and undamaged, or is refused."""

from __future__ import annotations

from random import Random

import google_crc32c
import pytest

from taskraft_replication.errors import SnapshotBroken, SnapshotBusy
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.snapshot_inbox import IncomingSnapshot, SnapshotInbox
from tests.sim.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1))


@pytest.fixture
def inbox(disk: SimDisk) -> SnapshotInbox:
    return SnapshotInbox(disk, "raft-0")


def write(incoming: IncomingSnapshot, turn: int, offset: int, data: bytes, before: bytes) -> None:
    """Write a piece with the checksum of all content up to its end."""
    incoming.write(turn, offset, data, google_crc32c.value(before + data))


def content(inbox: SnapshotInbox, name: str) -> bytes:
    return b"".join(inbox.chunks(name))


def test_pieces_are_joined_to_the_content(inbox):
    incoming = inbox.begin("one")
    turn = incoming.attach()
    write(incoming, turn, 0, b"abc", b"")
    write(incoming, turn, 3, b"", b"abc")
    write(incoming, turn, 3, b"def", b"abc")
    assert incoming.size == 6
    incoming.complete(turn)
    incoming.seal()
    assert content(inbox, "one") == b"abcdef"


@pytest.mark.parametrize("offset", [0, 2, 4, 6])
def test_a_piece_that_does_not_follow_is_refused_and_changes_nothing(inbox, offset):
    incoming = inbox.begin("one")
    turn = incoming.attach()
    write(incoming, turn, 0, b"abc", b"")
    with pytest.raises(SnapshotBroken, match=f"piece at byte {offset} does not follow byte 3"):
        write(incoming, turn, offset, b"abc", b"abc")
    write(incoming, turn, 3, b"def", b"abc")
    assert content(inbox, "one") == b"abcdef"


def test_a_damaged_piece_is_refused_and_changes_nothing(inbox):
    incoming = inbox.begin("one")
    turn = incoming.attach()
    write(incoming, turn, 0, b"abc", b"")
    with pytest.raises(SnapshotBroken, match="piece at byte 3 fails its checksum"):
        incoming.write(turn, 3, b"deF", google_crc32c.value(b"abcdef"))
    assert incoming.size == 3
    write(incoming, turn, 3, b"def", b"abc")
    assert content(inbox, "one") == b"abcdef"


def test_a_replaced_stream_can_no_longer_write(inbox):
    incoming = inbox.begin("one")
    old = incoming.attach()
    write(incoming, old, 0, b"abc", b"")
    assert inbox.begin("one") is incoming
    new = incoming.attach()
    with pytest.raises(SnapshotBroken, match="another stream"):
        write(incoming, old, 3, b"def", b"abc")
    incoming.detach(old)
    assert incoming.is_receiving, "the end of the old stream is not that of the new one"
    write(incoming, new, 3, b"DEF", b"abc")
    assert content(inbox, "one") == b"abcDEF"
    incoming.detach(new)
    assert not incoming.is_receiving


def test_a_complete_content_accepts_no_further_stream(inbox):
    incoming = inbox.begin("one")
    turn = incoming.attach()
    incoming.complete(turn)
    incoming.detach(turn)
    assert incoming.is_receiving, "it is being installed"
    with pytest.raises(SnapshotBusy, match="is being installed"):
        incoming.attach()
    with pytest.raises(SnapshotBusy, match="another snapshot is being received"):
        inbox.begin("two")
    inbox.discard("one")
    assert inbox.begin("two").name == "two"


def test_a_sealed_content_survives_a_power_loss(disk, inbox):
    incoming = inbox.begin("one")
    turn = incoming.attach()
    write(incoming, turn, 0, b"abc" * 1000, b"")
    incoming.complete(turn)
    incoming.seal()
    disk.sync_directory("raft-0/incoming")
    disk.lose_power()
    disk.recover()
    assert disk.read("raft-0/incoming/one") == b"abc" * 1000


def test_another_snapshot_replaces_one_whose_stream_has_ended(disk, inbox):
    incoming = inbox.begin("one")
    turn = incoming.attach()
    with pytest.raises(SnapshotBusy, match="another snapshot is being received"):
        inbox.begin("two")
    incoming.detach(turn)
    inbox.begin("two")
    assert disk.names("raft-0/incoming") == ["two"]
    with pytest.raises(SnapshotBroken, match="another stream"):
        write(incoming, turn, 0, b"abc", b"")


def test_the_inbox_is_empty_after_a_start(disk, inbox):
    inbox.begin("one")
    SnapshotInbox(disk, "raft-0")
    assert disk.names("raft-0/incoming") == []


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b"])
def test_an_invalid_name_is_refused(inbox, name):
    with pytest.raises(SnapshotBroken, match="invalid transfer id"):
        inbox.begin(name)


def test_a_content_that_cannot_be_completed_is_dropped_once(disk, inbox):
    """The next snapshot may already be arriving when a stream finds its content broken."""
    first = inbox.begin("one")
    first.attach()
    inbox.give_up(first)
    assert disk.names("raft-0/incoming") == []
    second = inbox.begin("one")
    inbox.give_up(first)
    assert disk.names("raft-0/incoming") == ["one"]
    assert inbox.begin("one") is second


def test_an_inbox_takes_one_content_at_a_time_and_starts_empty_in_a_new_process(tmp_path):
    inbox = SnapshotInbox(DiskFileSystem(tmp_path), "m")
    one = inbox.begin("one")
    turn = one.attach()
    one.write(turn, 0, b"", 0)  # The content may be empty.
    with pytest.raises(SnapshotBroken, match="another snapshot"):
        inbox.begin("two")
    assert SnapshotInbox(DiskFileSystem(tmp_path), "m").begin("two").name == "two"
    assert [path.name for path in (tmp_path / "m" / "incoming").iterdir()] == ["two"]


def test_a_stream_that_was_replaced_cannot_disturb_its_successor(tmp_path):
    inbox = SnapshotInbox(DiskFileSystem(tmp_path), "m")
    content = inbox.begin("one")
    stale = content.attach()
    assert inbox.begin("one") is content
    turn = content.attach()
    with pytest.raises(SnapshotBroken, match="another stream"):
        content.write(stale, 0, b"x", google_crc32c.value(b"x"))
    content.detach(stale)
    with pytest.raises(SnapshotBroken, match="another snapshot"):
        inbox.begin("two")
    content.write(turn, 0, b"y", google_crc32c.value(b"y"))
    assert b"".join(inbox.chunks("one")) == b"y"


def test_a_piece_that_was_refused_leaves_no_trace(tmp_path):
    content = SnapshotInbox(DiskFileSystem(tmp_path), "m").begin("one")
    turn = content.attach()
    with pytest.raises(SnapshotBroken, match="checksum"):
        content.write(turn, 0, b"x", 1)
    content.write(turn, 0, b"y", google_crc32c.value(b"y"))
    assert content.size == 1


def test_a_content_that_was_given_up_is_not_written_any_more(tmp_path):
    inbox = SnapshotInbox(DiskFileSystem(tmp_path), "m")
    content = inbox.begin("one")
    turn = content.attach()
    content.detach(turn)
    inbox.begin("two")
    with pytest.raises(SnapshotBroken, match="another stream"):
        content.write(turn, 0, b"late", google_crc32c.value(b"late"))
