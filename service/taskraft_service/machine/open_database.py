"""A database that is in use: the queue on it, and the batches written to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from taskraft_service.command_codecs.put import new_task
from taskraft_service.entries.body_editor import edit_body
from taskraft_service.queue.entities.tube_driver import TubeDriver, TubeDriverMissing
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.persistence.meta_record import UnknownFormatError
from taskraft_service.queue.queue import Queue
from taskraft_service.storage.directory import StateForeign
from taskraft_service.storage.rocks import RocksStore, StateDamaged


class OpenDatabase:
    """An open database, the queue on it, and the indexes up to which it is written and durable.

    Invariant: ``durable_index <= written_index <= queue.applied_index``.

    Raises:
        StateDamaged: the database cannot be read.
        StateForeign: another version wrote it.
    """

    def __init__(
        self, place: Path, store: RocksStore, limits: Limits, drivers: Mapping[str, TubeDriver]
    ) -> None:
        self.place = place
        self.store = store
        try:
            self.queue = Queue(store, limits, new_task, edit_body, drivers)
        except UnknownFormatError as error:
            store.close()
            raise StateForeign(f"{place}: {error}") from error
        except (StateDamaged, TubeDriverMissing):
            store.close()
            raise
        self.written_index = self.durable_index = self.queue.applied_index

    def collect(self) -> None:
        """Write all changes since the last batch, with the applied index, in one batch."""
        self.store.write(self.queue.collect_writes())
        self.queue.read_ahead()
        self.written_index = self.queue.applied_index

    def flush(self) -> int:
        """Make the written batches durable; return the index up to which they are."""
        index = self.written_index
        self.store.flush()
        self.durable_index = index
        return index
