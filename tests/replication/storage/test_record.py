"""The log accepts only records that can be read back."""

import pytest

from taskraft_replication.core.types import LogIndex
from taskraft_replication.errors import EntryTooLarge
from taskraft_replication.storage import record
from taskraft_replication.storage.record import decode_record, encode_batch
from tests.replication.log_on_disk import SALT, entry


def encoded(*entries):
    return encode_batch(
        entries, salt=SALT, crc_before=0, synced=LogIndex(0), commit=LogIndex(0)
    ).data


def test_the_largest_entry_is_read_back_and_a_larger_one_is_refused(monkeypatch):
    monkeypatch.setattr(record, "ENTRY_BYTES_MAX", 10)
    raw = encoded(entry(1, data=b"x" * 10))
    assert decode_record(raw, 0, SALT).entry.data == b"x" * 10
    with pytest.raises(EntryTooLarge, match="entry 2 has 11 bytes"):
        encoded(entry(1, data=b"x"), entry(2, data=b"x" * 11))
