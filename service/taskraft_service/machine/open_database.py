"""Hold an open database: the queue that is stored in it, and the batches written to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from taskraft_service.command_codecs.put import new_task
from taskraft_service.entries.body_editor import edit_body
from taskraft_service.queue.entities.tube_driver import TubeDriver, TubeDriverMissing
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.persistence.state_records import UnknownFormatError
from taskraft_service.queue.persistence.task_writes import STEP_TASKS
from taskraft_service.queue.persistence.upgrade_chain import upgrade_store
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.storage.directory import StateForeign
from taskraft_service.storage.rocks import StateDamaged
from taskraft_service.versions import ClusterVersionUnknown


class FixedState(Protocol):
    """A state that does not change; satisfied by ``storage.rocks.StateView``."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs whose keys begin with a prefix, in order."""


class Database(Store, Protocol):
    """A store that can be written; satisfied by ``storage.rocks.RocksStore``."""

    @property
    def is_choked(self) -> bool:
        """Return whether a write would block until the disk catches up."""

    def prepare(self, writes: Iterable[Write]) -> None:
        """Keep writes for the next ``write``, which applies them before its own."""

    def write(self, writes: Iterable[Write]) -> None:
        """Apply the prepared and the given writes in order, as one batch."""

    def view(self) -> FixedState:
        """Return the written state as it is now."""

    def tables(self) -> Mapping[str, int]:
        """Return name and size in bytes of each table file in use."""

    def flush(self) -> None:
        """Make all writes so far durable."""

    def freeze(self, place: Path) -> None:
        """Copy the current state into a new directory."""

    def close(self) -> None:
        """Close the store."""


class OpenDatabase:
    """An open database, the queue on it, and the indexes up to which it is written and durable.

    Invariant: ``durable_index <= written_index <= queue.applied_index``.

    Raises:
        StateDamaged: the database cannot be read.
        StateForeign: a release wrote it whose formats this release does not read.
    """

    def __init__(
        self, place: Path, store: Database, limits: Limits, drivers: Mapping[str, TubeDriver]
    ) -> None:
        self.place = place
        self.store = store
        try:
            upgrade_store(store)
            self.queue = Queue(store, limits, new_task, edit_body, drivers)
        except (UnknownFormatError, ClusterVersionUnknown) as error:
            store.close()
            raise StateForeign(f"{place}: {error}") from error
        except (StateDamaged, TubeDriverMissing):
            store.close()
            raise
        self.written_index = self.durable_index = self.queue.applied_index

    @property
    def needs_steps(self) -> bool:
        """Whether so many tasks have changed that their batch is collected in steps."""
        return self.queue.unwritten_tasks[0] > STEP_TASKS

    def collect_steps(self) -> Iterator[None]:
        """Write all changes since the last batch, with the applied index, in one batch.

        Yields after each step of a few milliseconds. No entry may be applied before the end.
        """
        while self.needs_steps:
            self.store.prepare(self.queue.collect_some())
            yield
        self.store.write(self.queue.collect_writes())
        self.queue.look_ahead()
        self.written_index = self.queue.applied_index

    def collect(self) -> None:
        """Write all changes since the last batch, without a pause for other work."""
        for _ in self.collect_steps():
            pass

    def upgrade(self) -> None:
        """Convert the store after an entry has raised the cluster version."""
        self.collect()
        upgrade_store(self.store)
        self.queue.adopt_format()

    def flush(self) -> int:
        """Make the written batches durable; return the last index that is durable."""
        index = self.written_index
        self.store.flush()
        self.durable_index = index
        return index
