"""Keep the databases of a node in a directory, one of which is the current one.

A snapshot is installed by building a whole new database beside the old one and moving one small
synced file that names the current one. A crash at any moment leaves the one or the other.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Final

POINTER: Final = "current"
FORMAT: Final = 1


class StateForeign(Exception):
    """The directory holds the state of another cluster, member or version; nothing was touched."""


class StateDirectory:
    """The directory ``state`` of a node.

    Args:
        path: made if it is missing.
        cluster_id: whose state it is.
        member_id: whose state it is.

    Raises:
        StateForeign: it belongs to another cluster or member, or its pointer is unreadable.
    """

    def __init__(self, path: Path, cluster_id: str, member_id: int) -> None:
        self._path = path
        self._identity = {"format": FORMAT, "cluster_id": cluster_id, "member_id": member_id}
        path.mkdir(parents=True, exist_ok=True)
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
        """Make the database at ``fresh`` the current one, durably."""
        self._write_pointer(self._generation + 1)
        self._generation += 1

    def discard_old(self) -> None:
        """Remove the databases that are not current; they must be closed."""
        self._remove_others()

    def _place(self, generation: int) -> Path:
        return self._path / f"{generation:08d}"

    def _read_pointer(self) -> int:
        pointer = self._path / POINTER
        if not pointer.exists():
            self._write_pointer(1)
            return 1
        try:
            said = json.loads(pointer.read_text())
            generation = said.pop("generation")
        except (ValueError, KeyError, AttributeError) as error:
            raise StateForeign(f"{pointer} is unreadable: {error}") from error
        if said != self._identity or not isinstance(generation, int):
            raise StateForeign(f"{pointer} belongs to {said}, not to {self._identity}")
        return generation

    def _write_pointer(self, generation: int) -> None:
        pointer = self._path / POINTER
        draft = self._path / f"{POINTER}.draft"
        with draft.open("w") as file:
            json.dump({**self._identity, "generation": generation}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(pointer)
        directory = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _remove_others(self) -> None:
        for place in self._path.iterdir():
            if place.is_dir() and place != self.current:
                shutil.rmtree(place)
