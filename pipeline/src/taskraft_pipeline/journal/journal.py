"""Lay out a journal's folder on a file system, and publish into it in single steps.

The file system must have hard links that fail if the name exists, as every local one and NFS do.
With executors on other machines all of them must see the folder under the same path.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.errors import JournalRefused
from taskraft_pipeline.journal.manifest import FORMAT, Manifest
from taskraft_pipeline.offsets import Offset
from taskraft_pipeline.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BATCH_DIGITS: Final = 12


@dataclass(slots=True, frozen=True)
class Journal:
    """A journal's folder; see the package for what is in it."""

    root: Path

    @classmethod
    def at(cls, place: str | Path) -> Journal:
        """Return the journal of a folder, which need not exist.

        Raises:
            JournalRefused: it is no path of this machine's file systems.
        """
        text = str(place)
        if "://" in text and not text.startswith("file://"):
            raise JournalRefused(f"{text}: a journal lies on a mounted file system")
        return cls(Path(text.removeprefix("file://")).absolute())

    @property
    def description(self) -> Path:
        """Where it says which feed it is of."""
        return self.root / "_journal.json"

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps how far the export is."""
        return self.root / "_checkpoint"

    def batch_folder(self, batch: int) -> Path:
        """Return where the files of a batch are."""
        return self.root / "raw" / f"batch={batch:0{BATCH_DIGITS}d}"

    def manifest_path(self, batch: int) -> Path:
        """Return where the manifest of a batch is, once it is published."""
        return self.root / "_manifests" / "raw" / f"{batch:0{BATCH_DIGITS}d}.json"

    def planned(self, batch: int) -> Offset:
        """Return where a batch ends according to Spark, which wrote it down before reading.

        Raises:
            JournalRefused: Spark's checkpoint does not say so in a form that is known.
        """
        path = self.checkpoint / "offsets" / str(batch)
        lines = path.read_text().splitlines()
        # A version, the settings of the query, then a line for each source.
        if len(lines) != 3 or lines[0] != "v1":
            raise JournalRefused(f"{path}: an unknown form of Spark's offset log: {lines[:1]}")
        return Offset.from_json(lines[2])

    def exists(self) -> bool:
        """Tell whether something was exported here, or was about to."""
        return self.description.exists()

    def create(self, start: Offset) -> None:
        """Begin a journal at a position of a feed."""
        written = {
            "format": FORMAT,
            "start": start.to_json(),
            "columns": list(COLUMNS),
            "partitioned_by": ["batch", "date"],
        }
        publish(self.description, written)

    def start(self) -> Offset:
        """Return the position at which the journal begins, and with it the feed's identity.

        Raises:
            JournalRefused: there is no journal, or one of another format.
        """
        if not self.exists():
            raise JournalRefused(f"{self.root}: no journal here")
        stored = read_json(self.description)
        if stored.get("format") != FORMAT:
            raise JournalRefused(f"{self.root}: format {stored.get('format')}, not {FORMAT}")
        return Offset.from_json(stored.get("start"))

    def manifest(self, batch: int) -> Manifest | None:
        """Return what a batch holds; None if it was not published."""
        path = self.manifest_path(batch)
        return Manifest.from_json(read_json(path)) if path.exists() else None

    def manifests(self) -> Iterator[Manifest]:
        """Yield the manifests in the order of their batches, gaps or not."""
        for path in sorted(self.manifest_path(0).parent.glob("*.json")):
            yield Manifest.from_json(read_json(path))

    def position_before(self, batch: int) -> Mapping[int, int]:
        """Return where a batch must begin.

        Raises:
            JournalRefused: the batch before it is missing.
        """
        if batch == 0:
            return self.start().next_seq
        previous = self.manifest(batch - 1)
        if previous is None:
            raise JournalRefused(
                f"{self.root}: Spark's checkpoint goes on with batch {batch}, but there is no"
                f" manifest of batch {batch - 1}"
            )
        return previous.next_seq

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other export out; the lock ends with the process, however it ends.

        Raises:
            JournalRefused: another export runs.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "_lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JournalRefused(f"{self.root}: another export runs here") from None
            yield


def spark_path(path: Path) -> str:
    """Return a local path as Spark wants it: a URI would have its "=" escaped, and kept so."""
    return f"file://{path}"


def read_json(path: Path) -> dict[str, object]:
    """Return the object that a file holds.

    Raises:
        JournalRefused: it holds none.
    """
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise JournalRefused(f"{path}: damaged: {error}") from error
    if not isinstance(found, dict):
        raise JournalRefused(f"{path}: damaged: no object")
    return found


def publish(path: Path, content: Mapping[str, object]) -> None:
    """Create a file with its whole content in one step that lasts.

    Raises:
        FileExistsError: it exists. What is published is never replaced.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with draft.open("w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    finally:
        draft.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
