"""The scrubber reads the log while it is written, and finds each flipped bit."""

import pytest

from taskraft_replication.damage import Damage, DamagedPart
from taskraft_replication.storage.direct_reader import DirectReader
from taskraft_replication.storage.record import decode_record, encode_batch
from taskraft_replication.storage.segment import RECORDS_OFFSET
from tests.replication.log_on_disk import SALT, Log, entry


def reader(log):
    def read(name, offset, size):
        file = DirectReader(log.path / name)
        try:
            return file.read(offset, size)
        finally:
            file.close()

    return read


def damage_in(log):
    return [each for each in log.storage.scrub(reader(log)) if isinstance(each, Damage)]


@pytest.fixture
def log(tmp_path):
    """A log of several segments."""
    log = Log(tmp_path)
    log.append_each(2, 300)
    assert len(log.segments) > 2
    return log


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def test_a_whole_log_is_read_without_damage(log):
    steps = list(log.storage.scrub(reader(log)))
    records = sum(each.end - 64 for each in log.storage._log.segments)
    assert sum(steps) >= records


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("at", [3, 70, 200])
def test_a_flipped_bit_in_a_segment_is_found(log, which, at):
    path = log.segments[which]
    flip(path, at)
    (damage,) = damage_in(log)
    assert (damage.part, damage.file) == (DamagedPart.LOG, f"raft-0/log/{path.name}")
    assert damage.offset <= max(at, 64)


def test_a_valid_record_that_does_not_follow_the_record_before_is_damage(log):
    """An older block of the disk can hold a valid record of the same entry."""
    path = log.segments[0]
    raw = path.read_bytes()
    first = decode_record(raw, RECORDS_OFFSET, SALT)
    at = RECORDS_OFFSET + first.size
    record = decode_record(raw, at, SALT)
    other = encode_batch(
        [record.entry],
        salt=SALT,
        crc_before=first.crc ^ 1,
        synced=record.synced,
        commit=record.commit,
    )
    assert len(other.data) == record.size
    path.write_bytes(raw[:at] + other.data + raw[at + record.size :])
    (damage,) = damage_in(log)
    assert (damage.offset, damage.expected) == (at, f"the record of entry {record.entry.index}")


def test_a_missing_segment_is_damage(log):
    log.segments[1].unlink()
    (damage,) = damage_in(log)
    assert damage.actual == "no file"


@pytest.mark.parametrize(
    "kind", ["identity", "directory", "incarnation", "hard_state", "log_start", "membership"]
)
def test_a_flipped_bit_in_a_small_file_is_found(log, kind):
    flip(log.path / "raft-0" / kind, -2)
    (damage,) = damage_in(log)
    assert (damage.part, damage.file) == (DamagedPart.METADATA, f"raft-0/{kind}")


def test_entries_that_are_truncated_during_a_pass_are_no_damage(log):
    """Between reading and checking, the log replaces the entries by others."""
    plain, replaced = reader(log), []

    def read(name, offset, size):
        raw = plain(name, offset, size)
        if name.endswith(log.segments[-1].name) and offset >= 64 and not replaced:
            replaced.append(name)
            first = log.storage._log.segments[-1].first_index + 3
            log.append(*[entry(first + each, 2, b"other, longer data") for each in range(9)])
            return bytes(size)
        return raw

    steps = log.storage.scrub(read)
    assert not [each for each in steps if isinstance(each, Damage)]
    assert replaced


def test_a_segment_that_is_trimmed_during_a_pass_is_no_damage(log):
    plain, trimmed, second = reader(log), [], log.segments[1].name

    def read(name, offset, size):
        if second in name and not trimmed:
            trimmed.append(name)
            log.storage.trim(log.storage.trim_start(log.storage._log.segments[1].last_index))
        return plain(name, offset, size)

    steps = log.storage.scrub(read)
    assert not [each for each in steps if isinstance(each, Damage)]
    assert trimmed


def test_records_that_are_swapped_are_damage(log):
    """Each record is valid on its own; the chain and the index show the exchange."""
    segment = log.storage._log.segments[0]
    path = log.segments[0]
    raw = bytearray(path.read_bytes())
    first, second, third = segment.offsets[:3]
    assert second - first == third - second
    raw[first:second], raw[second:third] = raw[second:third], raw[first:second]
    path.write_bytes(raw)
    (damage,) = damage_in(log)
    assert damage.offset == first
