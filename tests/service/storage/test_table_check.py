"""Every byte of a RocksDB table is checked, and a flipped bit is found at its place."""

import random

import pytest

from taskraft_replication.storage.direct_reader import DirectReader
from taskraft_service.queue.store.store import RangeDeletion
from taskraft_service.storage.rocks import RocksStore
from taskraft_service.storage.table_check import (
    _FOOTER_BYTES,
    BlockDamaged,
    TableUnknown,
    check_table,
    damaged_ranges,
)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table with data, a filter, deleted ranges and a compressed index."""
    place = tmp_path_factory.mktemp("table") / "db"
    store = RocksStore(place, 1 << 20, 1 << 22)
    draw = random.Random(1)
    store.write([(b"t%08d" % each, draw.randbytes(30) + b"x" * 200) for each in range(5_000)])
    store.write([RangeDeletion(b"t00000100", b"t00000200")])
    store.flush()
    (name,) = store.tables()
    store.close()
    return place / name


def check(path):
    file = DirectReader(path)
    try:
        return sum(check_table(file))
    finally:
        file.close()


def test_all_bytes_of_a_table_are_read(table):
    assert check(table) == table.stat().st_size


@pytest.mark.parametrize("area", ["data", "end", "footer"])
def test_a_flipped_bit_is_found(table, tmp_path, area):
    raw = table.read_bytes()
    size = len(raw)
    places = {
        "data": random.Random(2).sample(range(size), 150),
        "end": random.Random(3).sample(range(size - 3_000, size), 150),
        "footer": range(size - _FOOTER_BYTES, size),
    }[area]
    for place in places:
        flipped = bytearray(raw)
        flipped[place] ^= 1 << random.Random(place).randrange(8)
        damaged = tmp_path / "flipped"
        damaged.write_bytes(flipped)
        with pytest.raises((BlockDamaged, TableUnknown)) as caught:
            check(damaged)
        if area == "data":
            assert isinstance(caught.value, BlockDamaged)
            assert caught.value.offset <= place


@pytest.mark.parametrize("size", [0, 40, 5_000])
def test_a_table_that_is_cut_off_is_damaged(table, tmp_path, size):
    short = tmp_path / "short"
    short.write_bytes(table.read_bytes()[:size])
    with pytest.raises(BlockDamaged):
        check(short)


WHOLE = (b"t00000000", b"t00004999")


def ranges_in(path):
    file = DirectReader(path)
    try:
        return damaged_ranges(file, WHOLE)
    finally:
        file.close()


def test_the_keys_of_a_damaged_block_are_between_its_neighbours(table, tmp_path):
    assert ranges_in(table) == []
    raw = bytearray(table.read_bytes())
    raw[len(raw) // 2] ^= 0x10
    damaged = tmp_path / "flipped"
    damaged.write_bytes(raw)
    ((first, last),) = ranges_in(damaged)
    assert WHOLE[0] < first < last < WHOLE[1]
    assert 5 < int(last[1:]) - int(first[1:]) < 40, "a block has 4 KiB, and a pair 239 bytes"


@pytest.mark.parametrize("place", [-1, -_FOOTER_BYTES - 10])
def test_damage_outside_of_the_data_hides_all_keys(table, tmp_path, place):
    raw = bytearray(table.read_bytes())
    raw[place] ^= 0x10
    damaged = tmp_path / "flipped"
    damaged.write_bytes(raw)
    assert ranges_in(damaged) == [WHOLE]
