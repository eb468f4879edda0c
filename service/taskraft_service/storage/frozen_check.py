"""Read every block of a database that nobody writes, before somebody relies on the database.

RocksDB checks a block only when it reads the block, and the opening of a database reads few blocks.
Without this check, a member would copy the damage of the member that sends the state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from taskraft_replication.damage import Damage, DamagedPart
from taskraft_service.storage.manifest import ManifestDamaged, check_manifest
from taskraft_service.storage.rocks import RocksStore, StateDamaged
from taskraft_service.storage.state_scrub import scrub_table

CACHE_BYTES: Final = 1 << 20
"""Size of the block cache with which RocksDB reads old tables."""


def find_damage(place: Path) -> Damage | None:
    """Return the first damage in the closed database at ``place``, or None.

    The damage has the name of the file in ``place``.

    Raises:
        OSError: a file could not be read for a reason that is no damage.
    """
    try:
        check_manifest(place)
    except ManifestDamaged as error:
        return Damage(DamagedPart.STATE, "MANIFEST", 0, "a valid manifest", str(error))
    has_unknown = False
    for path in sorted(place.glob("*.sst")):
        for step in scrub_table(path, path.stat().st_size):
            if step is None:
                has_unknown = True
            elif not isinstance(step, int):
                return Damage(DamagedPart.STATE, path.name, *step)
    return _unreadable(place) if has_unknown else None


def _unreadable(place: Path) -> Damage | None:
    """Let RocksDB read all pairs, because a release before the scrubber wrote some tables."""
    try:
        store = RocksStore(place, CACHE_BYTES, CACHE_BYTES, read_only=True)
        try:
            for _ in store.view().scan(b""):
                pass
        finally:
            store.close()
    except StateDamaged as error:
        return Damage(DamagedPart.STATE, place.name, 0, "blocks that can be read", str(error))
    return None
