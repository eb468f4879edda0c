"""Snapshots of whole states: a frozen state is restored, and invalid input is refused."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskraft_replication.damage import DamagedPart
from taskraft_replication.errors import SnapshotBroken, SnapshotUnavailable
from taskraft_service import wire
from taskraft_service.queue.store.keys import session_key
from taskraft_service.storage import snapshot as snapshot_module
from taskraft_service.storage.rocks import RocksStore
from taskraft_service.storage.snapshot import (
    RocksSnapshot,
    SnapshotDamaged,
    SnapshotForeign,
    build,
)
from taskraft_service.versions import FORMATS, HIGHEST

MIB = 1 << 20
NEWEST = FORMATS[HIGHEST]
FIRST_LINE = b"taskraft state 2\n"


def everything(place):
    store = RocksStore(place, MIB, MIB)
    found = list(store.scan(b"", b"\xff" * 8))
    store.close()
    return found


def content_of(snapshot, size=MIB):
    pieces = (snapshot.read(offset, size) for offset in itertools.count(0, size))
    return b"".join(itertools.takewhile(len, pieces))


def archive(*files):
    head = FIRST_LINE + wire.varint(len(files))
    for name, content in files:
        head += wire.varint(len(name)) + name.encode() + wire.varint(len(content))
    return head + b"".join(content for _, content in files)


def test_digests_are_computed_in_parts_on_any_thread(tmp_path):
    store = RocksStore(tmp_path / "a", MIB, MIB)
    store.write([(session_key(number), b"x") for number in range(2_000)])
    store.freeze(tmp_path / "frozen")
    snapshot = RocksSnapshot(7, tmp_path / "frozen", NEWEST)
    parts = []
    while not parts or parts[-1] is None:
        with ThreadPoolExecutor(1) as another:
            parts.append(another.submit(snapshot.digest_more, 1).result())
    assert len(parts) > 5
    whole = RocksSnapshot(7, tmp_path / "frozen", NEWEST).digest_more(1_000)
    assert parts[-1] == whole
    snapshot.close()
    with pytest.raises(SnapshotUnavailable, match="closed"):
        snapshot.digest_more(1)


@settings(deadline=None, max_examples=10)
@given(
    st.dictionaries(st.binary(min_size=1, max_size=9), st.binary(max_size=99), max_size=50),
    st.integers(1, 5000),
)
def test_a_snapshot_builds_an_equal_store(tmp_path_factory, pairs, size):
    place = tmp_path_factory.mktemp("snapshot")
    store = RocksStore(place / "a", MIB, MIB)
    store.write(list(pairs.items()))
    store.freeze(place / "frozen")
    snapshot = RocksSnapshot(7, place / "frozen", NEWEST)
    store.write([(b"later", b"x")])
    content = content_of(snapshot)
    assert content == content_of(snapshot, size), (
        "the content does not depend on the sizes of the pieces"
    )
    build(place / "b", (content[at : at + size] for at in range(0, len(content), size)))
    assert everything(place / "b") == sorted(pairs.items())
    snapshot.close()
    assert not (place / "frozen").exists()
    store.close()


@pytest.fixture
def frozen(tmp_path):
    """The frozen copy of a database with one table, whose data is damaged by ``flip``."""
    store = RocksStore(tmp_path / "a", MIB, MIB)
    store.write([(b"%05d" % number, b"x%d" % number) for number in range(10_000)])
    store.freeze(tmp_path / "frozen")
    yield tmp_path / "frozen"
    store.close()


def flip(place):
    (table,) = place.glob("*.sst")
    content = bytearray(table.read_bytes())
    content[100] ^= 8
    table.write_bytes(content)  # a new file: the table of the open database stays whole


@pytest.mark.shows_fault(
    "copies",
    "a table of a state that is sent or saved is damaged",
    "refuses to send the table, and repairs itself if there are other voters",
)
def test_a_damaged_table_is_reported_and_not_sent(frozen):
    found = []
    flip(frozen)
    snapshot = RocksSnapshot(1, frozen, NEWEST, found.append)
    with pytest.raises(SnapshotUnavailable, match="sst is damaged at byte 0"):
        content_of(snapshot)
    (damage,) = found
    assert (damage.part, damage.offset) == (DamagedPart.STATE, 0)


@pytest.mark.shows_fault(
    "copies",
    "a received state or a restored snapshot file has a damaged block",
    "reads all blocks before it gives up anything, and refuses the state",
)
def test_a_received_table_with_a_damaged_block_is_refused(frozen, tmp_path):
    whole = content_of(RocksSnapshot(1, frozen, NEWEST))
    (table,) = frozen.glob("*.sst")
    before = table.read_bytes()
    flip(frozen)
    damaged = whole.replace(before, table.read_bytes())
    assert damaged != whole
    build(tmp_path / "right", [whole])
    with pytest.raises(SnapshotDamaged, match="sst is damaged at byte 0"):
        build(tmp_path / "wrong", [damaged])


def test_a_snapshot_is_read_from_any_offset(tmp_path):
    store = RocksStore(tmp_path / "a", MIB, MIB)
    store.write([(b"%05d" % number, b"x%d" % number) for number in range(10_000)])
    store.freeze(tmp_path / "frozen")
    snapshot = RocksSnapshot(1, tmp_path / "frozen", NEWEST)
    whole = content_of(snapshot)
    for offset in range(0, len(whole), 997):
        assert snapshot.read(offset, 1500) == whole[offset : offset + 1500]
    assert snapshot.read(len(whole), 10) == b""
    store.close()


FILES = (("OPTIONS-000007", b"s" * 70), ("rocksdict-config.json", b"{}"))


@given(st.integers(0, len(archive(*FILES)) + 2))
def test_a_snapshot_of_a_wrong_length_is_refused(tmp_path_factory, size):
    place = tmp_path_factory.mktemp("cut") / "db"
    whole = archive(*FILES)
    content = (whole + b"xx")[:size]
    if size == len(whole):
        build(place, [content])
        assert (place / "rocksdict-config.json").read_bytes() == FILES[1][1]
    else:
        with pytest.raises(SnapshotDamaged):
            build(place, [content])


@pytest.mark.parametrize(
    "name", ["../current", "/etc/passwd", "LOCK", "1.sst/../../x", "", "a\0b", "CURRENT\n"]
)
def test_only_files_of_a_database_are_accepted(tmp_path, name):
    with pytest.raises(SnapshotDamaged):
        build(tmp_path / "db", [archive((name, b"evil"))])
    assert list(tmp_path.iterdir()) == []


def test_a_repeated_file_is_refused(tmp_path):
    with pytest.raises(SnapshotDamaged, match="twice"):
        build(tmp_path / "db", [archive(FILES[0], FILES[0])])


@pytest.mark.parametrize("number", [b"\xff" * 20, wire.varint(100_001)])
def test_impossible_numbers_are_refused(tmp_path, number):
    with pytest.raises(SnapshotDamaged):
        build(tmp_path / "db", [FIRST_LINE + number])


def test_other_content_is_refused(tmp_path):
    with pytest.raises(SnapshotDamaged, match="not a snapshot"):
        build(tmp_path / "db", [b"something else entirely"])


@pytest.mark.parametrize("number", [1, 3, 10, 99_999])
def test_another_format_is_named_with_the_formats_that_are_read(tmp_path, number):
    content = archive(*FILES).replace(FIRST_LINE, b"taskraft state %d\n" % number)
    with pytest.raises(SnapshotForeign) as refused:
        build(tmp_path / "db", [content])
    assert str(refused.value) == (
        f"the snapshot has format {number}, and this release reads format 2; "
        f"use the release that wrote it, see docs/upgrading.md"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", [b"", b"02", b"0", b"x", b"-2", b"2 ", b"123456"])
def test_a_first_line_without_a_number_is_damage(tmp_path, word):
    content = archive(*FILES).replace(FIRST_LINE, b"taskraft state %s\n" % word)
    with pytest.raises(SnapshotDamaged, match="first line"):
        build(tmp_path / "db", [content])


def test_a_state_with_too_many_files_for_a_snapshot_is_not_sent(tmp_path, monkeypatch):
    store = RocksStore(tmp_path / "a", MIB, MIB)
    store.write([(b"a", b"x")])
    store.freeze(tmp_path / "frozen")
    kept = RocksSnapshot(1, tmp_path / "frozen", NEWEST)
    monkeypatch.setattr(snapshot_module, "FILES_MAX", len(list((tmp_path / "frozen").iterdir())))
    assert content_of(kept)
    monkeypatch.setattr(snapshot_module, "FILES_MAX", 1)
    with pytest.raises(SnapshotBroken, match="members accept 1;"):
        kept.read(0, MIB)
    kept.close()
    store.close()
