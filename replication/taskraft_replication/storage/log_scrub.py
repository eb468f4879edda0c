"""Read the log and the small files of Raft again, and check them while the node runs.

The functions are generators, which the caller advances on a thread of its own. They yield the
number of bytes that a step has read, or the damage that it has found. The log is written and
truncated meanwhile, so a finding counts only if it is found again in the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from taskraft_replication.core.types import LogIndex
from taskraft_replication.damage import Damage, DamagedPart, is_damage
from taskraft_replication.errors import FormatUnknown, LogDamaged
from taskraft_replication.storage.checked_file import parse_checked
from taskraft_replication.storage.record import decode_record
from taskraft_replication.storage.segment import RECORDS_OFFSET, Segment, parse_header
from taskraft_replication.storage.segment_log import SegmentLog

STEP_BYTES: Final = 64 << 10
"""Bytes of records that one step checks; takes about a millisecond with records of 200 bytes."""
ATTEMPTS: Final = 3
"""Number of times that damage must be found before it is reported."""
SMALL_FILES: Final = (
    "identity",
    "directory",
    "incarnation",
    "hard_state",
    "log_start",
    "membership",
)
"""Small files that every member has after its first start."""
SMALL_FILE_BYTES_MAX: Final = 1 << 20
"""Maximum size of a small file; the memberships are the largest."""

Read = Callable[[str, int, int], bytes]
"""Reads bytes of a file from the disk: name below the data directory, offset, size."""


def scrub_log(log: SegmentLog, read: Read) -> Iterator[int | Damage]:
    """Check the headers of all segments and the records up to the last durable entry.

    A segment that the log deletes meanwhile is left out.
    """
    for segment in log.segments:
        yield from _scrub_segment(log, segment, read)


def _scrub_segment(log: SegmentLog, segment: Segment, read: Read) -> Iterator[int | Damage]:
    """Check one segment, up to its first damage."""
    name = f"{log.directory}/{segment.name}"
    lo = segment.first_index
    failures = 0
    while segment in log.segments and lo <= segment.last_index:
        begin, size = segment.extent(lo, LogIndex(segment.last_index + 1), STEP_BYTES)
        try:
            if begin == RECORDS_OFFSET:
                parse_header(log.directory, segment.name, read(name, 0, RECORDS_OFFSET))
            raw = read(name, begin, size)
            end, count = _end_of_valid(raw, lo, log.salt)
            found = "no valid record"
        except FileNotFoundError:
            end, count, raw, found = 0, 0, b"", "no file"
        except (LogDamaged, OSError) as error:
            if isinstance(error, OSError) and not is_damage(error):
                raise
            end, count, raw, found = 0, 0, b"", str(error)
        if end == size:
            lo, failures = LogIndex(lo + count), 0
            yield size
            continue
        failures += 1
        yield len(raw)
        if failures == ATTEMPTS and segment in log.segments and lo <= segment.last_index:
            expected = f"the record of entry {lo + count}"
            yield Damage(DamagedPart.LOG, name, begin + end, expected, found)
            return


def _end_of_valid(raw: bytes, lo: LogIndex, salt: int) -> tuple[int, int]:
    """Return the end of the valid consecutive records from entry ``lo``, and their number."""
    offset = count = 0
    crc: int | None = None
    while offset < len(raw):
        record = decode_record(raw, offset, salt)
        if record is None or record.entry.index != lo + count:
            break
        if crc is not None and record.crc_before != crc:
            break
        crc = record.crc
        offset += record.size
        count += 1
    return offset, count


def scrub_small_files(directory: str, read: Read) -> Iterator[int | Damage]:
    """Check the small files of a group, which are replaced as a whole when they change."""
    for kind in SMALL_FILES:
        name = f"{directory}/{kind}"
        for attempt in range(1, ATTEMPTS + 1):
            try:
                raw = read(name, 0, SMALL_FILE_BYTES_MAX)
                parse_checked(name, raw)
            except FileNotFoundError:
                found = "no file"
            except (LogDamaged, FormatUnknown, OSError) as error:
                if isinstance(error, OSError) and not is_damage(error):
                    raise
                found = str(error)
            else:
                yield len(raw)
                break
            yield 0
            if attempt == ATTEMPTS:
                yield Damage(DamagedPart.METADATA, name, 0, "a file with a valid checksum", found)
