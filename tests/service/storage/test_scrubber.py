"""The scrubber checks all parts, reports damage once, and keeps the time of the last pass."""

import errno
import itertools

import pytest

from taskraft_replication.damage import Damage, DamagedPart
from taskraft_service.queue.store.store import RangeDeletion
from taskraft_service.storage import state_scrub
from taskraft_service.storage.rocks import RocksStore
from taskraft_service.storage.scrubber import CPU_SHARE_MAX, Pause, Scrubber
from taskraft_service.storage.state_scrub import UnknownTables, scrub_state

FOUND = Damage(DamagedPart.STATE, "state/1/7.sst", 12, "checksum 1", "2")


class Listener:
    def __init__(self):
        self.found = []

    def damage_found(self, damage):
        self.found.append(damage)


def scrubber(path, *parts, now_ms=lambda: 5_000, listener=None):
    call = lambda function: function()  # noqa: E731 - as the event loop does
    return Scrubber(path, parts, 1_000, now_ms, listener or Listener(), call)


def test_a_pass_counts_bytes_and_reports_each_file_once(tmp_path):
    listener = Listener()
    one = scrubber(tmp_path, lambda: iter((3, FOUND)), lambda: iter((4,)), listener=listener)
    one.run_pass()
    one.run_pass()
    assert listener.found == [FOUND]
    assert one.progress.damage == (FOUND,)
    assert (one.progress.bytes_read, one.progress.passes) == (14, 2)


def test_the_time_of_the_last_pass_survives_a_restart(tmp_path):
    assert scrubber(tmp_path).age_ms() is None
    scrubber(tmp_path).run_pass()
    assert scrubber(tmp_path, now_ms=lambda: 7_000).age_ms() == 2_000
    assert scrubber(tmp_path, now_ms=lambda: 1_000).age_ms() == 0, "the clock was set back"
    (tmp_path / "scrub").write_bytes(b"other")
    assert scrubber(tmp_path).age_ms() is None


def test_a_lack_of_descriptors_is_no_damage(tmp_path, monkeypatch):
    def fail(_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(state_scrub, "DirectReader", fail)
    monkeypatch.setattr(state_scrub, "check_manifest", lambda _: None)
    tables = lambda: (tmp_path, {"7.sst": 10})  # noqa: E731 - shorter
    listener = Listener()
    one = scrubber(
        tmp_path, lambda: scrub_state(tmp_path, tables, UnknownTables()), listener=listener
    )
    with pytest.raises(OSError, match="Too many open files"):
        one.run_pass()
    assert not listener.found
    assert one.progress.passes == 0


def test_a_stopped_pass_is_not_complete(tmp_path):
    one = scrubber(tmp_path, lambda: itertools.repeat(1 << 20))
    one.stop()
    one.run_pass()
    assert one.progress.passes == 0
    assert one.age_ms() is None


def test_pauses_bound_the_cpu_time_and_the_bytes():
    waits = []
    pause = Pause(waits.append)
    pause.after(32 << 20)
    assert sum(waits) >= 1
    sum(range(2_000_000))
    pause.after(0)
    assert waits[-1] * CPU_SHARE_MAX > 0


def store_with_tables(tmp_path):
    place = tmp_path / "state" / "00000001"
    place.parent.mkdir()
    store = RocksStore(place, 1 << 20, 1 << 20)
    for number in range(3):
        store.write([(b"k%d" % number, b"value" * 50), RangeDeletion(b"x", b"y")])
        store.flush()
    return place, store


def test_a_flipped_bit_in_a_table_is_found_without_a_read(tmp_path):
    place, store = store_with_tables(tmp_path)
    unknown = UnknownTables()
    tables = lambda: (place, store.tables())  # noqa: E731 - shorter
    steps = list(scrub_state(tmp_path, tables, unknown))
    assert sum(steps) == sum(store.tables().values())
    name = sorted(store.tables())[1]
    content = bytearray((place / name).read_bytes())
    content[5] ^= 4
    (place / name).write_bytes(content)
    (damage,) = [
        each for each in scrub_state(tmp_path, tables, unknown) if isinstance(each, Damage)
    ]
    assert (damage.part, damage.file, damage.offset) == (
        DamagedPart.STATE,
        f"state/00000001/{name}",
        0,
    )
    assert damage.expected.startswith("checksum ")
    assert damage.expected.split()[1] != damage.actual
    (place / name).write_bytes(content[:-1])
    (damage,) = [
        each for each in scrub_state(tmp_path, tables, unknown) if isinstance(each, Damage)
    ]
    assert damage.expected == f"{len(content)} bytes"
    assert unknown.count == 0
    store.close()
    assert not list(scrub_state(tmp_path, tables, unknown)), "the state was replaced"


def test_a_table_that_is_no_longer_used_is_no_damage(tmp_path):
    place, store = store_with_tables(tmp_path)
    live = store.tables()
    gone = min(live)
    views = iter([live, {name: size for name, size in live.items() if name != gone}])
    (place / gone).unlink()
    steps = list(scrub_state(tmp_path, lambda: (place, next(views)), UnknownTables()))
    assert not [each for each in steps if isinstance(each, Damage)]
    store.close()


def test_a_damaged_manifest_is_found(tmp_path):
    place, store = store_with_tables(tmp_path)
    (manifest,) = place.glob("MANIFEST-*")
    content = bytearray(manifest.read_bytes())
    content[2] ^= 1
    manifest.write_bytes(content)
    steps = scrub_state(tmp_path, lambda: (place, store.tables()), UnknownTables())
    (damage,) = [each for each in steps if isinstance(each, Damage)]
    assert damage.file == "state/00000001/MANIFEST"
    store.close()
