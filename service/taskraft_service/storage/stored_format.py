"""Check the format of a database before RocksDB opens the database for writing.

RocksDB replaces CURRENT, MANIFEST and OPTIONS at each opening for writing. A release that does not
read the format must change nothing, so the meta record is first read with a read-only opening. That
opening takes a few milliseconds, because RocksDB reads the manifest and at most some tables. The
format is read from the state itself: a copy of the format in another file could differ from the
state after a crash.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from taskraft_service.queue.persistence.state_records import UnknownFormatError, format_of
from taskraft_service.queue.store.keys import META
from taskraft_service.storage.directory import StateForeign
from taskraft_service.storage.rocks import RocksStore
from taskraft_service.versions import ClusterVersionUnknown

CACHE_BYTES: Final = 1 << 20
"""Memory for the blocks that are read, and for an unused write buffer."""


def check_format(database: Path) -> None:
    """Check that this release reads a closed database; a missing or empty database is accepted.

    Raises:
        StateForeign: another release wrote the database; nothing was changed.
        StateDamaged: the database cannot be read.
    """
    if not (database / "CURRENT").exists():
        return
    store = RocksStore(database, CACHE_BYTES, CACHE_BYTES, read_only=True)
    try:
        meta = store.get(META)
        if meta is not None:
            format_of(meta)
    except (UnknownFormatError, ClusterVersionUnknown) as error:
        raise StateForeign(f"{database}: {error}") from error
    finally:
        store.close()
