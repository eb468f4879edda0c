"""The queue's store on disk: reads, crashes, damage, frozen copies."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskraft_service.queue.store.store import RangeDeletion
from taskraft_service.storage import rocks
from taskraft_service.storage.rocks import RocksStore, StateClosed, StateDamaged

MIB = 1 << 20


@pytest.fixture
def store(tmp_path):
    one = RocksStore(tmp_path / "db", MIB, MIB)
    yield one
    one.close()


def everything(store):
    return list(store.scan(b"", b"\xff" * 8))


def test_written_pairs_are_found_in_order(store):
    store.write([(b"b", b"2"), (b"a", b"1"), (b"c", b"3"), (b"b", None)])
    assert store.get(b"a") == b"1"
    assert store.get(b"b") is None
    assert everything(store) == [(b"a", b"1"), (b"c", b"3")]


def test_a_scan_respects_its_bounds(store):
    store.write([(key, key) for key in (b"a", b"b", b"c", b"d")])
    assert [key for key, _ in store.scan(b"b", b"d")] == [b"b", b"c"]


@given(st.sets(st.binary(min_size=1, max_size=2), max_size=12), st.binary(max_size=2), st.data())
@settings(deadline=None, max_examples=40)
def test_a_scan_backwards_has_the_same_pairs(tmp_path_factory, keys, start, data):
    store = RocksStore(tmp_path_factory.mktemp("back"), MIB, MIB)
    store.write([(key, b"") for key in keys])
    stop = data.draw(st.sampled_from(sorted(keys) or [b"x"]) | st.binary(min_size=1, max_size=3))
    if start < stop:
        forwards = list(store.scan(start, stop))
        assert list(store.scan_back(start, stop)) == forwards[::-1]
    store.close()


def test_a_scan_keeps_its_bounds_alive(store):
    """RocksDB's binding frees a bound that nothing references.

    A scan with a freed bound ended after one pair.
    """
    store.write([(b"l" + os.urandom(8), b"x") for _ in range(50)])
    store.write([(b"z%02d" % number, b"x") for number in range(50)])
    store.flush()
    for _ in range(50):
        found = 0
        litter = []
        # The bound is created for the call, without another reference.
        for _ in store.scan(b"l", b"".join((b"m", b"a" * 24))):
            found += 1
            litter.append(os.urandom(25))
        assert found == 50


def test_ranges_are_deleted_in_the_order_of_the_writes(store):
    store.write([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    store.write([RangeDeletion(b"a", b"c"), (b"b", b"new")])
    assert everything(store) == [(b"b", b"new"), (b"c", b"3")]


def test_empty_values_are_values(store):
    store.write([(b"a", b"")])
    assert store.get(b"a") == b""


@pytest.mark.real_time
def test_after_a_crash_the_state_is_that_of_the_last_flush(tmp_path):
    script = f"""
import os
from pathlib import Path
from taskraft_service.storage.rocks import RocksStore
store = RocksStore(Path({str(tmp_path / "db")!r}), {MIB}, {MIB})
store.write([(b"a", b"1"), (b"index", b"1")])
store.flush()
store.write([(b"a", b"2"), (b"index", b"2")])
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    store = RocksStore(tmp_path / "db", MIB, MIB)
    assert everything(store) == [(b"a", b"1"), (b"index", b"1")]
    store.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_that_is_opened_again_has_the_options_of_this_start(tmp_path, read_only):
    place = tmp_path / "db"
    first = RocksStore(place, MIB, MIB)
    first.write([(b"a", b"1")])
    first.flush()
    first.close()
    again = RocksStore(place, 3 * MIB, 2 * MIB, read_only=read_only)
    assert again._rocks.property_value("rocksdb.block-cache-capacity") == str(3 * MIB)
    if not read_only:  # which writes no log
        log = (place / "LOG").read_text()
        assert "filter_policy: bloomfilter" in log
        assert f"Options.write_buffer_size: {2 * MIB}" in log
    again.close()


def test_damage_raises_one_kind_of_error(tmp_path):
    store = RocksStore(tmp_path / "db", MIB, MIB)
    store.write([(b"%d" % number, b"x" * 100) for number in range(1000)])
    store.flush()
    store.close()
    (manifest,) = (tmp_path / "db").glob("MANIFEST-*")
    content = bytearray(manifest.read_bytes())
    content[20] ^= 0xFF
    manifest.write_bytes(content)
    with pytest.raises(StateDamaged, match=str(tmp_path)):
        RocksStore(tmp_path / "db", MIB, MIB)


def damaged(tmp_path, places):
    """Return a store whose only table has wrong bytes at ``places``, as fractions of its size."""
    store = RocksStore(tmp_path / "db", MIB, MIB)
    store.write([(b"%04d" % number, os.urandom(100)) for number in range(1000)])
    store.flush()
    store.close()
    (table,) = (tmp_path / "db").glob("*.sst")
    content = bytearray(table.read_bytes())
    for at in places(len(content)):
        content[at] ^= 0xFF
    table.write_bytes(content)
    return RocksStore(tmp_path / "db", MIB, MIB)


def test_damage_found_by_a_read_raises_the_same_error(tmp_path):
    store = damaged(tmp_path, lambda size: range(0, size // 2, 1000))
    with pytest.raises(StateDamaged, match=str(tmp_path)):
        store.get(b"0001")
    with pytest.raises(StateDamaged, match=str(tmp_path)):
        store.get_many([b"0001", b"0002"])
    with pytest.raises(StateDamaged, match=str(tmp_path)):
        list(store.scan_back(b"0000", b"0500"))
    with pytest.raises(StateDamaged, match=str(tmp_path)):
        everything(store)
    store.close()


@pytest.mark.parametrize("pairs", [0, 1, 15, 16, 17, 18, 100])
def test_a_walk_of_any_length_yields_each_pair_once(store, pairs):
    expected = [(b"%04d" % number, b"x") for number in range(pairs)]
    store.write([*expected, (b"z", b"beyond")])
    assert list(store.scan(b"0", b"y")) == expected
    assert list(store.scan_back(b"0", b"y")) == expected[::-1]


def test_damage_late_in_a_scan_is_not_taken_for_its_end(tmp_path):
    store = damaged(tmp_path, lambda size: [size // 2])
    for walk in (store.scan(b"0000", b"9"), store.scan_back(b"0000", b"9")):
        found = []
        with pytest.raises(StateDamaged, match=str(tmp_path)):
            found.extend(key for key, _ in walk)
        assert len(found) > 100
    store.close()


def compact_until_it_fails(store, pairs):
    """Write until a compaction in the background has met a damaged block."""
    while True:
        store.write(pairs)
        store.flush()


def test_a_store_whose_background_write_has_failed_is_closed_and_can_be_opened_again(tmp_path):
    place = tmp_path / "s"
    store = RocksStore(place, 1 << 16, 1 << 20)
    pairs = [(b"k%05d" % number, os.urandom(200)) for number in range(1000)]
    for _ in range(3):
        store.write(pairs)
        store.flush()
    store.close()
    store = RocksStore(place, 1 << 16, 1 << 20)
    for table in place.glob("*.sst"):
        content = table.read_bytes()
        table.write_bytes(bytes(len(content) // 3) + content[len(content) // 3 :])
    with pytest.raises(StateDamaged):
        compact_until_it_fails(store, pairs)
    with pytest.raises(StateDamaged):
        store.close()
    RocksStore(place, 1 << 16, 1 << 20)


def test_a_closed_store_is_not_reported_as_damaged(tmp_path):
    store = RocksStore(tmp_path / "db", MIB, MIB)
    store.close()
    with pytest.raises(StateClosed):
        store.get(b"a")
    with pytest.raises(StateClosed):
        everything(store)


def test_a_frozen_copy_does_not_change(store, tmp_path):
    store.write([(b"a", b"1"), (b"b", b"2")])
    store.freeze(tmp_path / "copy")
    store.write([(b"a", b"changed"), (b"c", b"new"), RangeDeletion(b"b", b"c")])
    store.flush()
    frozen = RocksStore(tmp_path / "copy", MIB, MIB, read_only=True)
    assert everything(frozen) == [(b"a", b"1"), (b"b", b"2")]
    frozen.close()


def test_a_checkpoint_has_nothing_to_flush(store, tmp_path, monkeypatch):
    unflushed = []
    checkpoint_of = rocks.Checkpoint

    def watched(rocksdb):
        unflushed.append(rocksdb.property_int_value("rocksdb.num-entries-active-mem-table"))
        return checkpoint_of(rocksdb)

    monkeypatch.setattr(rocks, "Checkpoint", watched)
    store.write([(b"a", b"1")])
    store.freeze(tmp_path / "copy")
    assert unflushed == [0], "the library holds the interpreter lock during this flush"


def test_a_store_that_keeps_up_is_not_choked(store):
    store.write([(b"a", b"1")])
    assert not store.is_choked
