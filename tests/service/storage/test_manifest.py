"""A manifest with any flipped bit is refused before RocksDB, which some of them hang, reads it."""

import pytest

from service.storage.manifest import BLOCK_BYTES, ManifestDamaged, check_manifest
from service.storage.rocks import RocksStore, StateDamaged


def database_in(place, flushes):
    store = RocksStore(place, 1 << 20, 1 << 20)
    for number in range(flushes):
        store.write([(b"key %d" % number, b"value")])
        store.flush()
    store.close()
    (manifest,) = place.glob("MANIFEST-*")
    return manifest


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return database_in(tmp_path_factory.mktemp("small") / "db", 3)


def test_what_rocksdb_has_written_is_good_also_over_blocks(tmp_path):
    manifest = database_in(tmp_path / "db", 300)
    assert manifest.stat().st_size > BLOCK_BYTES
    check_manifest(manifest.parent)


def test_a_flipped_bit_in_any_byte_is_damage(manifest):
    raw = manifest.read_bytes()
    last = 0
    while (following := last + 7 + int.from_bytes(raw[last + 4 : last + 6], "little")) < len(raw):
        last = following
    try:
        for place in range(len(raw)):
            for bit in range(8):
                flipped = bytearray(raw)
                flipped[place] ^= 1 << bit
                manifest.write_bytes(flipped)
                try:
                    check_manifest(manifest.parent)
                except ManifestDamaged:
                    continue
                # The last record with a longer length looks like an incomplete one.
                assert last + 4 <= place < last + 6, (place, bit)
    finally:
        manifest.write_bytes(raw)


def test_the_type_of_a_recycled_record_does_not_hang_the_node(manifest):
    """RocksDB 9.8.4 looks for the record behind it for ever."""
    raw = manifest.read_bytes()
    second = 7 + int.from_bytes(raw[4:6], "little")
    flipped = bytearray(raw)
    flipped[second + 6] ^= 4
    manifest.write_bytes(flipped)
    try:
        with pytest.raises(StateDamaged, match="no valid record"):
            RocksStore(manifest.parent, 1 << 20, 1 << 20)
    finally:
        manifest.write_bytes(raw)


def test_an_incomplete_record_at_the_end_is_what_a_crash_leaves(manifest):
    raw = manifest.read_bytes()
    try:
        for tail in (b"\0" * 100, b"\1\2\3", raw[:20]):
            manifest.write_bytes(raw + tail)
            check_manifest(manifest.parent)
    finally:
        manifest.write_bytes(raw)


def test_a_manifest_that_is_missing_is_damage_and_no_database_is_not(tmp_path):
    check_manifest(tmp_path)
    (tmp_path / "CURRENT").write_text("MANIFEST-000005\n")
    with pytest.raises(ManifestDamaged, match="is missing"):
        check_manifest(tmp_path)
