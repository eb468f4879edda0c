"""Damage the tables of a stopped node's state, as a bad disk does."""

from __future__ import annotations

from pathlib import Path

LARGE_BYTES = 50_000


def break_tables_in(data: Path) -> None:
    """Damage payloads in the large tables of a data directory, in place.

    The payloads are the last part of a table. The opening of the state does not read them.
    """
    tables = [table for table in data.glob("state/*/*.sst") if table.stat().st_size > LARGE_BYTES]
    assert tables
    for table in tables:
        content = bytearray(table.read_bytes())
        for at in range(len(content) // 2, len(content) * 3 // 4, 512):
            content[at] ^= 0x10
        table.write_bytes(content)
