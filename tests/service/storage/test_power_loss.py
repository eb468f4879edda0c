"""After a power loss, a RocksDB database has the state of a flush or is refused.

Only a completed flush makes data durable, and the log is trimmed only up to a flush. Each test
takes the files at one flush, plus any subset of sectors of the later writes of RocksDB.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from taskraft_service.storage.rocks import RocksStore, StateDamaged

MIB = 1 << 20
SECTOR_BYTES = 512
PAIRS = 40
FLUSHES = 3
"""Number of flushes, small enough that RocksDB starts no compaction. A compaction would run at a
random time."""


def pairs_of(flush: int) -> list[tuple[bytes, bytes]]:
    """Return the pairs written before a flush: new keys, a constant key, the index."""
    drawn = Random(flush)
    pairs = [(b"%d %03d" % (flush, number), drawn.randbytes(100)) for number in range(PAIRS)]
    return [*pairs, (b"again", b"%d" % flush), (b"index", b"%d" % flush)]


@pytest.fixture(scope="module")
def flushed(tmp_path_factory) -> list[dict[str, bytes]]:
    """The files of a database after each flush."""
    place = tmp_path_factory.mktemp("whole") / "db"
    store = RocksStore(place, MIB, MIB)
    moments: list[dict[str, bytes]] = []
    for flush in range(1, FLUSHES + 1):
        store.write(pairs_of(flush))
        store.flush()
        moments.append({path.name: path.read_bytes() for path in sorted(place.iterdir())})
    store.close()
    return moments


def index_of(place: Path) -> int:
    """Open a database and read all of it; return the flush whose state the database has.

    Raises: StateDamaged: RocksDB detected missing data.
    """
    store = RocksStore(place, MIB, MIB)
    try:
        found = dict(store.scan(b"", b"\xff"))
    finally:
        store.close()
    index = int(found[b"index"])
    expected: dict[bytes, bytes] = {}
    for flush in range(1, index + 1):
        expected |= pairs_of(flush)
    assert found == expected
    return index


def lay_out(place: Path, files: dict[str, bytes]) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name, content in files.items():
        (place / name).write_bytes(content)
    return place


def torn(durable: bytes, current: bytes, drawn: Random) -> bytes:
    """Return a file after a power loss: its size may be smaller, and sectors may be missing."""
    size = drawn.choice((len(durable), drawn.randint(len(durable), len(current)), len(current)))
    luck = drawn.choice((0.0, 0.5, 0.9, 1.0))
    content = bytearray(durable) + bytes(size - len(durable))
    for sector in range(0, size, SECTOR_BYTES):
        begin, end = max(sector, len(durable)), min(sector + SECTOR_BYTES, size)
        if begin < end and drawn.random() < luck:
            content[begin:end] = current[begin:end]
    return bytes(content)


def left_of(durable: dict[str, bytes], current: dict[str, bytes], drawn: Random) -> Iterator[str]:
    """Yield the new file names that a power loss leaves."""
    return (name for name in current if name in durable or drawn.random() < 0.7)


@pytest.mark.parametrize("since", range(1, FLUSHES))
def test_after_any_power_loss_the_state_is_of_a_flush_or_refused(flushed, since, tmp_path):
    durable, current = flushed[since - 1], flushed[-1]
    seen = set()
    for seed in range(40):
        drawn = Random(seed)
        names = left_of(durable, current, drawn)
        files = {name: torn(durable.get(name, b""), current[name], drawn) for name in names}
        try:
            index = index_of(lay_out(tmp_path / "db", files))
        except StateDamaged:
            index = 0
        assert index == 0 or index >= since
        seen.add(index)
    assert {0, since} <= seen, "both happen"


@pytest.mark.parametrize("since", range(1, FLUSHES))
def test_in_the_sync_order_of_rocksdb_nothing_is_refused(flushed, since, tmp_path):
    """Tables are synced before the manifest that names them; any prefix of the manifest may exist.

    A torn record of the manifest with zeros behind it is refused, because a synced record with
    damage looks the same: see ``check_manifest``. RocksDB refuses both, too.
    """
    durable, current = flushed[since - 1], flushed[-1]
    (manifest,) = (name for name in current if name.startswith("MANIFEST-"))
    shortest, longest = len(durable[manifest]), len(current[manifest])
    seen = set()
    for size in range(shortest, longest + 1, 5):
        files = {**current, manifest: current[manifest][:size]}
        seen.add(index_of(lay_out(tmp_path / "db", files)))
    files = {**current, manifest: durable[manifest] + bytes(1000)}
    assert index_of(lay_out(tmp_path / "db", files)) == since, "reserved, and nothing written"
    assert min(seen) == since
    assert index_of(lay_out(tmp_path / "db", current)) == FLUSHES


def test_only_unflushed_changes_are_lost(flushed, tmp_path):
    """Until a flush, changes are only in memory, and only the Raft log contains them."""
    place = lay_out(tmp_path / "db", flushed[0])
    store = RocksStore(place, MIB, MIB)
    store.write(pairs_of(2))
    files = {path.name: path.read_bytes() for path in sorted(place.iterdir())}
    store.close()
    assert index_of(lay_out(tmp_path / "copy", files)) == 1
