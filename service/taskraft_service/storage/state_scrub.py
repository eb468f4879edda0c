"""Check the files of the state against their checksums while the node runs.

A file is checked only if RocksDB uses it, because RocksDB writes and deletes other files meanwhile.
Snapshots that are being sent are hard links to the same files. See ``log_scrub`` for the protocol
of the generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from taskraft_replication.damage import Damage, DamagedPart, is_damage
from taskraft_replication.storage.direct_reader import DirectReader
from taskraft_service.storage.manifest import ManifestDamaged, check_manifest
from taskraft_service.storage.rocks import StateClosed
from taskraft_service.storage.table_check import BlockDamaged, TableUnknown, check_table

LiveTables = Callable[[], tuple[Path, Mapping[str, int]]]
"""Returns the directory of the database, and name and size of each table that it uses."""


class UnknownTables:
    """Counts the tables whose format could not be checked."""

    def __init__(self) -> None:
        """Set the count to zero."""
        self.count = 0


def scrub_state(
    data_dir: Path, tables: LiveTables, unknown: UnknownTables
) -> Iterator[int | Damage]:
    """Check the manifest and all tables of the current database."""
    try:
        place, live = tables()
    except StateClosed:
        return  # A snapshot replaced the database; the next pass checks the new one.
    shown = place.relative_to(data_dir)
    found = _manifest_finding(place)
    yield 0
    if found and _manifest_finding(place) and _is_current(tables, place):
        yield Damage(DamagedPart.STATE, f"{shown}/MANIFEST", 0, "a valid manifest", found)
    for name, size in sorted(live.items()):
        for step in scrub_table(place / name, size):
            if isinstance(step, int):
                yield step
            elif step is None:
                unknown.count += 1
            elif _is_live(tables, place, name):
                offset, expected, actual = step
                yield Damage(DamagedPart.STATE, f"{shown}/{name}", offset, expected, actual)


def _is_current(tables: LiveTables, place: Path) -> bool:
    """Return whether the database is still in use."""
    try:
        return tables()[0] == place
    except StateClosed:
        return False


def _is_live(tables: LiveTables, place: Path, name: str) -> bool:
    """Return whether the database still uses a table."""
    try:
        current, live = tables()
    except StateClosed:
        return False
    return current == place and name in live


def _manifest_finding(place: Path) -> str:
    """Return a description of the damage to the manifest; empty: no damage."""
    try:
        check_manifest(place)
    except ManifestDamaged as error:
        return str(error)
    return ""


def scrub_table(path: Path, size: int) -> Iterator[int | tuple[int, str, str] | None]:
    """Check one table; yield the number of bytes read after each step.

    Damage is yielded as offset, expected and actual content, an unknown format as None.
    """
    try:
        file = DirectReader(path)
    except OSError as error:
        if not is_damage(error):
            raise
        yield 0, "a file that can be opened", str(error)
        return
    try:
        if file.size != size:
            yield min(file.size, size), f"{size} bytes", f"{file.size} bytes"
            return
        yield from check_table(file)
    except BlockDamaged as error:
        yield error.offset, error.expected, error.actual
    except TableUnknown:
        yield None
    except OSError as error:
        if not is_damage(error):
            raise
        yield 0, "bytes that can be read", str(error)
    finally:
        file.close()
