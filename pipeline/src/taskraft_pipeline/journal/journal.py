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
from taskraft_pipeline.journal.generation import Generation
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

    @property
    def checkpoint_base(self) -> Path:
        """File in the checkpoint with the journal's batch that is batch 0 of the checkpoint."""
        return self.checkpoint / "_taskraft_base.json"

    def first_batch(self) -> int:
        """Return the number of the first batch that the present checkpoint has written.

        Raises:
            JournalRefused: the file with the number is damaged.
        """
        if not self.checkpoint_base.exists():
            return 0
        base = read_json(self.checkpoint_base).get("first_batch")
        if not isinstance(base, int):
            raise JournalRefused(f"{self.checkpoint_base}: damaged: first_batch is {base!r}")
        return base

    def has_checkpoint(self) -> bool:
        """Return whether Spark can continue from a checkpoint."""
        return (self.checkpoint / "metadata").exists()

    def start_checkpoint(self, first_batch: int) -> None:
        """Begin a new checkpoint whose batch 0 is ``first_batch`` of the journal."""
        self.checkpoint_base.unlink(missing_ok=True)
        publish(self.checkpoint_base, {"first_batch": first_batch})

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
        path = self.checkpoint / "offsets" / str(batch - self.first_batch())
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
            "id": str(uuid.uuid4()),
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
        return Offset.from_json(self._description().get("start"))

    def id(self) -> str:
        """Return the id of the journal, which each of its manifests names.

        Raises:
            JournalRefused: as `start`.
        """
        return str(self._description().get("id"))

    def _description(self) -> Mapping[str, object]:
        if not self.exists():
            raise JournalRefused(f"{self.root}: the folder contains no journal")
        stored = read_json(self.description)
        if stored.get("format") != FORMAT:
            raise JournalRefused(
                f"{self.root}: format {stored.get('format')}, this release reads {FORMAT}"
            )
        return stored

    def manifest(self, batch: int) -> Manifest | None:
        """Return the manifest of a batch; None if the batch is not published."""
        path = self.manifest_path(batch)
        return Manifest.from_json(read_json(path)) if path.exists() else None

    def manifests(self, first_batch: int = 0) -> Iterator[Manifest]:
        """Yield the manifests from a batch on, in order of the batches; batches may be missing."""
        first = self.manifest_path(first_batch).name
        for path in sorted(self.manifest_path(0).parent.glob("*.json")):
            if path.name >= first:
                yield Manifest.from_json(read_json(path))

    def last_manifest(self) -> Manifest | None:
        """Return the manifest of the last published batch; None if no batch is published."""
        paths = sorted(self.manifest_path(0).parent.glob("*.json"))
        return Manifest.from_json(read_json(paths[-1])) if paths else None

    def generation_path(self, number: int) -> Path:
        """Return the path of the manifest of a generation of compacted files."""
        return self.root / "_manifests" / "events" / f"{number:0{BATCH_DIGITS}d}.json"

    def generations(self) -> Iterator[Generation]:
        """Yield the generations that are kept, oldest first."""
        for path in sorted(self.generation_path(0).parent.glob("*.json")):
            yield Generation.from_json(read_json(path))

    def generation(self) -> Generation | None:
        """Return the generation in force; None if the journal was never compacted."""
        paths = sorted(self.generation_path(0).parent.glob("*.json"))
        return Generation.from_json(read_json(paths[-1])) if paths else None

    def manifest_before(self, batch: int) -> Manifest | None:
        """Return the manifest of the previous batch; None for batch 0.

        Raises:
            JournalRefused: the previous batch is missing.
        """
        if batch == 0:
            return None
        previous = self.manifest(batch - 1)
        if previous is None:
            raise JournalRefused(
                f"{self.root}: Spark's checkpoint continues with batch {batch}, but there is no"
                f" manifest of batch {batch - 1}"
            )
        return previous

    @contextlib.contextmanager
    def locked(self, work: str = "export") -> Iterator[None]:
        """Lock the journal against other work of the same kind; the lock ends with the process.

        Args:
            work: "export" or "compaction".

        Raises:
            JournalRefused: such work runs.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ("_lock" if work == "export" else f"_lock.{work}")).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JournalRefused(
                    f"{self.root}: another {work} of this journal is running"
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


def numbered_folders(parent: Path, prefix: str) -> list[tuple[int, Path]]:
    """Return the folders whose names are a prefix and a number, in order of their names."""
    return [
        (int(number), path)
        for path in sorted(parent.glob(f"{prefix}*"))
        if (number := path.name.removeprefix(prefix)).isdecimal() and path.is_dir()
    ]


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
