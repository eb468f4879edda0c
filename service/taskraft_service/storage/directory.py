"""Manage the databases of a node in one directory; one of them is the current one.

To install a snapshot, a complete new database is built beside the current one. Then the small file
that names the current database is replaced atomically and synced. A crash at any moment leaves
either the old or the new database current.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Final, Protocol

from taskraft_replication.errors import FormatUnknown, LogDamaged
from taskraft_replication.storage.checked_file import JsonValue, read_checked, write_checked
from taskraft_replication.storage.filesystem import DiskFileSystem, FileSystem, sync_directory

STATE_DIRECTORY: Final = "state"
"""Subdirectory of the data directory."""
POINTER: Final = "current"
ASIDE_SUFFIX: Final = ".damaged"
RELEASED: Final = "released"
"""File in a damaged copy that the node does not need any more."""
OUTGOING: Final = "outgoing"
"""Subdirectory of frozen states that are being sent."""


class StateForeign(Exception):
    """The directory holds the state of another cluster, member or version; nothing was changed."""


class StateMissing(Exception):
    """The current database, or the file that names it, is missing or unreadable."""


def set_aside(path: Path) -> Path:
    """Move a damaged directory beside its place; return its new place.

    The copy may be the best one that is left, so it stays until ``release_copies``. Released copies
    are deleted now.
    """
    for copy in copies_of(path):
        if (copy / RELEASED).exists():
            shutil.rmtree(copy)
    first = path.with_name(path.name + ASIDE_SUFFIX)
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    aside = next(place for place in chain((first,), others) if not place.exists())
    path.rename(aside)
    sync_directory(path.parent)
    return aside


def put_back(copy: Path, path: Path) -> None:
    """Put a copy back in its place; set aside the directory that is there, if there is one."""
    # A released copy would be deleted now, or as soon as it is set aside again.
    (copy / RELEASED).unlink(missing_ok=True)
    sync_directory(copy)
    if path.exists():
        set_aside(path)
    copy.rename(path)
    sync_directory(path.parent)


def release_copies(path: Path) -> list[Path]:
    """Allow that the copies of a directory that were set aside are deleted; return them."""
    copies = [copy for copy in copies_of(path) if not (copy / RELEASED).exists()]
    for copy in copies:
        (copy / RELEASED).touch()
    return copies


def copies_of(path: Path) -> list[Path]:
    """Return the damaged copies of a directory that were set aside, in no order."""
    names = re.compile(re.escape(path.name + ASIDE_SUFFIX) + r"(-\d+)?")
    return [place for place in path.parent.iterdir() if names.fullmatch(place.name)]


def place_of(path: Path, generation: int) -> Path:
    """Return the place of a database in a directory of databases."""
    return path / f"{generation:08d}"


def _generation(fs: FileSystem, path: Path, identity: Mapping[str, JsonValue]) -> int:
    """Return the number of the current database.

    Raises:
        StateForeign: the databases belong to another cluster, member or version.
        StateMissing: the pointer is missing or unreadable.
    """
    try:
        said = read_checked(fs, POINTER)
    except LogDamaged as error:
        raise StateMissing(f"{path}: {error}") from error
    except FormatUnknown as error:
        raise StateForeign(f"{path}: {error}") from error
    generation = said.pop("generation", None)
    if said != identity or not isinstance(generation, int):
        raise StateForeign(
            f"{path} belongs to {said}, expected {dict(identity)}; use another data_dir"
        )
    return generation


def current_database(path: Path, cluster_id: str, member_id: int) -> Path:
    """Return the current database in a directory of databases, and change nothing.

    Raises:
        StateForeign, StateMissing: see ``StateDirectory``.
    """
    identity: dict[str, JsonValue] = {"cluster_id": cluster_id, "member_id": member_id}
    return place_of(path, _generation(DiskFileSystem(path), path, identity))


class DatabaseDirectory(Protocol):
    """The places of the databases of a node; satisfied by ``StateDirectory``."""

    @property
    def current(self) -> Path:
        """Path of the current database."""

    def fresh(self) -> Path:
        """Return a path for a new database."""

    def switch(self) -> None:
        """Make the database at ``fresh`` the current database."""

    def discard(self, place: Path) -> None:
        """Delete a database that is not current."""

    def outgoing(self) -> Path:
        """Return a path for a further frozen state."""


def _accept(_database: Path) -> None:
    """Accept every database; the default of ``StateDirectory``."""


class StateDirectory:
    """The directory ``state`` of a node.

    Args:
        path: the directory; created if it is missing.
        cluster_id: cluster that owns the state.
        member_id: member that owns the state.
        open_files: opens the files of a directory.
        check: checks the current database; called before an existing directory is changed.

    Raises:
        StateForeign: the state belongs to another cluster, member or version.
        StateMissing: the pointer is missing or unreadable, or its database is missing.
    """

    def __init__(
        self,
        path: Path,
        cluster_id: str,
        member_id: int,
        open_files: Callable[[Path], FileSystem] = DiskFileSystem,
        check: Callable[[Path], None] = _accept,
    ) -> None:
        self._path = path
        self._identity: dict[str, JsonValue] = {"cluster_id": cluster_id, "member_id": member_id}
        self._frozen = 0
        if not path.is_dir():
            path.mkdir(parents=True)
            sync_directory(path.parent)
        self._fs = open_files(path)
        self._generation = self._read_pointer()
        check(self.current)
        self._remove_others()

    @property
    def current(self) -> Path:
        """Path of the current database."""
        return self._place(self._generation)

    def fresh(self) -> Path:
        """Return a path for a new database; delete the remains of an earlier attempt."""
        place = self._place(self._generation + 1)
        shutil.rmtree(place, ignore_errors=True)
        return place

    def switch(self) -> None:
        """Make the database at ``fresh`` the current database, durably."""
        self._write_pointer(self._generation + 1)
        self._generation += 1

    def discard(self, place: Path) -> None:
        """Delete a database that is not current; it must be closed."""
        assert place != self.current
        shutil.rmtree(place)

    def outgoing(self) -> Path:
        """Return a path for a further frozen state; the next start deletes leftovers."""
        parent = self._path / OUTGOING
        parent.mkdir(exist_ok=True)
        self._frozen += 1
        return parent / f"{self._frozen:08d}"

    def _place(self, generation: int) -> Path:
        return place_of(self._path, generation)

    def _read_pointer(self) -> int:
        if not self._fs.exists(POINTER):
            if any(place.is_dir() and any(place.iterdir()) for place in self._path.iterdir()):
                raise StateMissing(
                    f"{self._path / POINTER} is missing although databases exist; remove this "
                    "member and let the node join again with an empty data_dir"
                )
            # Create the empty directory first: a pointer to a missing directory would count as
            # damage.
            self._place(1).mkdir(exist_ok=True)
            self._write_pointer(1)
            return 1
        generation = _generation(self._fs, self._path, self._identity)
        if not self._place(generation).is_dir():
            raise StateMissing(f"current database {self._place(generation)} is missing")
        return generation

    def _write_pointer(self, generation: int) -> None:
        write_checked(self._fs, POINTER, {**self._identity, "generation": generation})

    def _remove_others(self) -> None:
        """Delete databases that a switch or a crash has left.

        After a kill, the pointer on disk may be older than the pointer in the page cache. The older
        pointer names a database that is deleted here, so the newer pointer is synced first.
        """
        sync_directory(self._path)
        for place in self._path.iterdir():
            if place.is_dir() and place != self.current:
                shutil.rmtree(place)
