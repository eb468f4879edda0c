"""Keep the databases of a node in a directory, one of which is the current one.

A snapshot is installed by building a whole new database beside the old one and moving one small
synced file that names the current one. A crash at any moment leaves the one or the other.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from taskraft_replication.errors import FormatUnknown, LogDamaged
from taskraft_replication.storage.checked_file import JsonValue, read_checked, write_checked
from taskraft_replication.storage.failing_filesystem import with_failpoints
from taskraft_replication.storage.failpoints import NO_FAILPOINTS, Failpoints
from taskraft_replication.storage.filesystem import DiskFileSystem, sync_directory

POINTER: Final = "current"
OUTGOING: Final = "outgoing"
"""Where frozen states lie that are being sent."""


class StateForeign(Exception):
    """The directory holds the state of another cluster, member or version; nothing was touched."""


class StateMissing(Exception):
    """A database that is named as the current one, or the name of it, is not there."""


class StateDirectory:
    """The directory ``state`` of a node.

    Args:
        path: made if it is missing.
        cluster_id: whose state it is.
        member_id: whose state it is.
        failpoints: what goes wrong on purpose.

    Raises:
        StateForeign: it belongs to another cluster, member or version, or its pointer is
            unreadable.
        StateMissing: its pointer or the database that this names is gone.
    """

    def __init__(
        self,
        path: Path,
        cluster_id: str,
        member_id: int,
        failpoints: Failpoints = NO_FAILPOINTS,
    ) -> None:
        self._path = path
        self._identity: dict[str, JsonValue] = {"cluster_id": cluster_id, "member_id": member_id}
        self._frozen = 0
        self.failpoints = failpoints
        if not path.is_dir():
            path.mkdir(parents=True)
            sync_directory(path.parent)
        self._fs = with_failpoints(DiskFileSystem(path), failpoints)
        self._generation = self._read_pointer()
        self._remove_others()

    @property
    def current(self) -> Path:
        """Where the current database lies."""
        return self._place(self._generation)

    def fresh(self) -> Path:
        """Return a place for a new database; what an earlier attempt left there is removed."""
        place = self._place(self._generation + 1)
        shutil.rmtree(place, ignore_errors=True)
        return place

    def switch(self) -> None:
        """Make the database at ``fresh``, which must be durable, the current one, durably."""
        self._write_pointer(self._generation + 1)
        self._generation += 1

    def discard(self, place: Path) -> None:
        """Remove a database that is not current; it must be closed."""
        assert place != self.current
        shutil.rmtree(place)

    def outgoing(self) -> Path:
        """Return a place for another frozen state; what a crash leaves there goes at a start."""
        parent = self._path / OUTGOING
        parent.mkdir(exist_ok=True)
        self._frozen += 1
        return parent / f"{self._frozen:08d}"

    def _place(self, generation: int) -> Path:
        return self._path / f"{generation:08d}"

    def _read_pointer(self) -> int:
        if not self._fs.exists(POINTER):
            if any(place.is_dir() and any(place.iterdir()) for place in self._path.iterdir()):
                raise StateMissing(f"{self._path / POINTER} is missing")
            # First a place, still empty: a pointer to nothing would be damage.
            self._place(1).mkdir(exist_ok=True)
            self._write_pointer(1)
            return 1
        try:
            said = read_checked(self._fs, POINTER)
        except (LogDamaged, FormatUnknown) as error:
            raise StateForeign(f"{self._path}: {error}") from error
        generation = said.pop("generation", None)
        if said != self._identity or not isinstance(generation, int):
            raise StateForeign(f"{self._path} belongs to {said}, not to {self._identity}")
        if not self._place(generation).is_dir():
            raise StateMissing(f"{self._place(generation)} is missing")
        return generation

    def _write_pointer(self, generation: int) -> None:
        write_checked(self._fs, POINTER, {**self._identity, "generation": generation})

    def _remove_others(self) -> None:
        """Remove what a switch or a crash has left.

        A kill may have left a pointer that the disk does not have yet: what it named before must
        not go first.
        """
        sync_directory(self._path)
        for place in self._path.iterdir():
            if place.is_dir() and place != self.current:
                shutil.rmtree(place)
