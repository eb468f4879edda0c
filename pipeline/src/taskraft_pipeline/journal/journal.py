"""The folder of a journal, and atomic creation of files in it.

The file system must support hard links that fail if the name exists; local file systems and NFS do.
Executors on other machines must see the folder under the same path.
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
    """The folder of a journal; the package docstring describes its content."""

    root: Path

    @classmethod
    def at(cls, place: str | Path) -> Journal:
        """Return the journal of a folder, which need not exist.

        Raises:
            JournalRefused: `place` is not a path of a mounted file system.
        """
        text = str(place)
        if "://" in text and not text.startswith("file://"):
            raise JournalRefused(f"{text}: a journal must be on a mounted file system; give a path")
        return cls(Path(text.removeprefix("file://")).absolute())

    @property
    def description(self) -> Path:
        """File that names the feed and the start position."""
        return self.root / "_journal.json"

    @property
    def checkpoint(self) -> Path:
        """Folder of Spark's checkpoint."""
        return self.root / "_checkpoint"

    def batch_folder(self, batch: int) -> Path:
        """Return the folder with the files of a batch."""
        return self.root / "raw" / f"batch={batch:0{BATCH_DIGITS}d}"

    def manifest_path(self, batch: int) -> Path:
        """Return the path of the manifest of a batch."""
        return self.root / "_manifests" / "raw" / f"{batch:0{BATCH_DIGITS}d}.json"

    def planned(self, batch: int) -> Offset:
        """Return the end of a batch, which Spark logs before it reads the batch.

        Raises:
            JournalRefused: Spark's offset log has an unknown format.
        """
        path = self.checkpoint / "offsets" / str(batch)
        lines = path.read_text().splitlines()
        # Format of the log: a version, the settings of the query, then one line per source.
        if len(lines) != 3 or lines[0] != "v1":
            raise JournalRefused(f"{path}: unknown format of Spark's offset log: {lines[:1]}")
        return Offset.from_json(lines[2])

    def exists(self) -> bool:
        """Return whether an export to this journal has been started."""
        return self.description.exists()

    def create(self, start: Offset) -> None:
        """Create a journal that starts at a position of a feed."""
        written = {
            "format": FORMAT,
            "start": start.to_json(),
            "columns": list(COLUMNS),
            "partitioned_by": ["batch", "date"],
        }
        publish(self.description, written)

    def start(self) -> Offset:
        """Return the start position, which also names the feed.

        Raises:
            JournalRefused: there is no journal, or it has another format.
        """
        if not self.exists():
            raise JournalRefused(f"{self.root}: the folder contains no journal")
        stored = read_json(self.description)
        if stored.get("format") != FORMAT:
            raise JournalRefused(
                f"{self.root}: format {stored.get('format')}, this release reads {FORMAT}"
            )
        return Offset.from_json(stored.get("start"))

    def manifest(self, batch: int) -> Manifest | None:
        """Return the manifest of a batch; None if the batch is not published."""
        path = self.manifest_path(batch)
        return Manifest.from_json(read_json(path)) if path.exists() else None

    def manifests(self) -> Iterator[Manifest]:
        """Yield all manifests in order of their batches; batches may be missing."""
        for path in sorted(self.manifest_path(0).parent.glob("*.json")):
            yield Manifest.from_json(read_json(path))

    def position_before(self, batch: int) -> Mapping[int, int]:
        """Return the start position of a batch.

        Raises:
            JournalRefused: the previous batch is missing.
        """
        if batch == 0:
            return self.start().next_seq
        previous = self.manifest(batch - 1)
        if previous is None:
            raise JournalRefused(
                f"{self.root}: Spark's checkpoint continues with batch {batch}, but there is no"
                f" manifest of batch {batch - 1}"
            )
        return previous.next_seq

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the journal against other exports; the lock ends with the process.

        Raises:
            JournalRefused: another export runs.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "_lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JournalRefused(
                    f"{self.root}: another export into this journal is running"
                ) from None
            yield


def spark_path(path: Path) -> str:
    """Return a local path for Spark; in a URI, Spark would escape "=" and keep the escape."""
    return f"file://{path}"


def read_json(path: Path) -> dict[str, object]:
    """Return the JSON object in a file.

    Raises:
        JournalRefused: the file does not contain a JSON object.
    """
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise JournalRefused(f"{path}: damaged: {error}") from error
    if not isinstance(found, dict):
        raise JournalRefused(f"{path}: damaged: not a JSON object")
    return found


def publish(path: Path, content: Mapping[str, object]) -> None:
    """Create a file with its whole content atomically and durably.

    Raises:
        FileExistsError: the file exists; a published file is never replaced.
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
    """Fsync a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
