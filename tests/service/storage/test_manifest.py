"""A manifest with a flipped bit is refused before RocksDB, which may hang on it, reads it."""

import google_crc32c
import pytest

from taskraft_service.storage.manifest import BLOCK_BYTES, ManifestDamaged, check_manifest
from taskraft_service.storage.rocks import RocksStore, StateDamaged


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


def test_manifests_of_rocksdb_are_valid_across_blocks(tmp_path):
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
                # A flipped length makes the last record look incomplete.
                assert last + 4 <= place < last + 6, (place, bit)
    finally:
        manifest.write_bytes(raw)


def test_the_type_of_a_recycled_record_does_not_hang_the_node(manifest):
    """RocksDB 9.8.4 searches for the next record forever."""
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


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\1\2\3", "the first record"])
def test_an_incomplete_last_record_is_accepted(tmp_path, tail):
    manifest = database_in(tmp_path / "db", 3)
    raw = manifest.read_bytes()
    manifest.write_bytes(raw + (tail if isinstance(tail, bytes) else raw[:20]))
    check_manifest(manifest.parent)
    store = RocksStore(manifest.parent, 1 << 20, 1 << 20)
    assert [key for key, _ in store.scan(b"", b"z")] == [b"key 0", b"key 1", b"key 2"]
    store.close()


def test_a_missing_manifest_is_damage_but_an_empty_folder_is_not(tmp_path):
    check_manifest(tmp_path)
    (tmp_path / "CURRENT").write_text("MANIFEST-000005\n")
    with pytest.raises(ManifestDamaged, match="is missing"):
        check_manifest(tmp_path)


def masked(record: bytes) -> bytes:
    """Return the masked checksum of type and data."""
    crc = google_crc32c.value(record)
    return ((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def record_of(kind: int, data: bytes) -> bytes:
    body = bytes([kind]) + data
    return masked(body) + len(data).to_bytes(2, "little") + body


@pytest.mark.parametrize("kind", range(8))
def test_only_the_four_types_of_a_log_that_is_not_recycled_are_accepted(tmp_path, kind):
    """Other types are refused even with a correct checksum: RocksDB would assume another format."""
    (tmp_path / "CURRENT").write_text("MANIFEST-000001\n")
    (tmp_path / "MANIFEST-000001").write_bytes(record_of(kind, b"data") + record_of(1, b"more"))
    if kind in range(1, 5):
        check_manifest(tmp_path)
    else:
        with pytest.raises(ManifestDamaged, match="no valid record at byte 0"):
            check_manifest(tmp_path)


def test_a_record_never_crosses_the_end_of_its_block(tmp_path):
    (tmp_path / "CURRENT").write_text("MANIFEST-000001\n")
    manifest = tmp_path / "MANIFEST-000001"
    fits = record_of(1, bytes(BLOCK_BYTES - 7))
    manifest.write_bytes(fits + record_of(1, b"more"))
    check_manifest(tmp_path)
    manifest.write_bytes(record_of(1, b"x") + record_of(1, b"y" * (BLOCK_BYTES - 14)) + fits)
    with pytest.raises(ManifestDamaged, match="no valid record at byte 8"):
        check_manifest(tmp_path)


def record(data, kind=1):
    """Return a record as RocksDB writes it; kind 2 is the first part of a longer record."""
    crc = google_crc32c.value(bytes([kind]) + data)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    head = masked.to_bytes(4, "little") + len(data).to_bytes(2, "little")
    return head + bytes([kind]) + data


def last_flipped(raw):
    return raw[:-1] + bytes([raw[-1] ^ 1])


def check(place, raw):
    (place / "CURRENT").write_text("MANIFEST-000001\n")
    (place / "MANIFEST-000001").write_bytes(raw)
    check_manifest(place)


@pytest.mark.parametrize(
    "end", [bytes(gap) for gap in range(7)] + [record(b"", 2), bytes(7), bytes(500)], ids=len
)
def test_the_padding_of_a_block_is_skipped_and_the_next_block_checked(tmp_path, end):
    first = record(bytes(BLOCK_BYTES - 7 - len(end)))
    for block in range(1, 4):
        raw = (first + end) * block + record(b"next block")
        check(tmp_path, raw)
        with pytest.raises(ManifestDamaged, match=f"at byte {block * BLOCK_BYTES}"):
            check(tmp_path, last_flipped(raw))


def test_an_empty_record_at_the_end_of_a_block_is_checked(tmp_path):
    raw = record(bytes(BLOCK_BYTES - 14)) + last_flipped(record(b"", 2)) + record(b"next block")
    with pytest.raises(ManifestDamaged, match=f"at byte {BLOCK_BYTES - 7}"):
        check(tmp_path, raw)
