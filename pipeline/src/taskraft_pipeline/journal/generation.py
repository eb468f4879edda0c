"""The manifest of a generation: the compacted files of a journal, up to a batch.

A generation names all compacted files; the one with the highest number is in force. Its files have
the events of the batches from 0 to ``last_batch``, so they replace the files of these batches.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from taskraft_pipeline.errors import JournalRefused
from taskraft_pipeline.journal.manifest import (
    FORMAT,
    json_list,
    json_number,
    json_object,
    json_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True, frozen=True)
class EventsFile:
    """A compacted Parquet file of one date and one tube.

    Attributes:
        path: path relative to the journal.
        events: number of events.
        bytes: size.
        sha256: digest of the content in hexadecimal.
        first_ms: time of the oldest event in ms.
        last_ms: time of the newest event in ms.
    """

    path: str
    events: int
    bytes: int
    sha256: str
    first_ms: int
    last_ms: int

    @property
    def date(self) -> str:
        """Date of the events in UTC, as YYYY-MM-DD."""
        return self._folder("date")

    @property
    def tube(self) -> str:
        """Name of the tube of the events."""
        return unquote(self._folder("tube"))

    def _folder(self, name: str) -> str:
        for part in self.path.split("/"):
            if part.startswith(f"{name}="):
                return part.removeprefix(f"{name}=")
        raise JournalRefused(f"{self.path}: the path has no folder {name}=")


@dataclass(slots=True, frozen=True)
class ErasedTask:
    """A task whose texts were removed from the files, and the time of the removal in ms."""

    tube: str
    task_id: int
    at_ms: int


@dataclass(slots=True, frozen=True)
class Generation:
    """The compacted files of a journal.

    Attributes:
        journal: id of the journal.
        number: number of the generation, from 1.
        last_batch: the files have the events of the batches from 0 to this one.
        chain: chain of the manifest of ``last_batch``, which identifies these batches.
        published_ms: time of the publication in ms.
        files: the files, ordered by path.
        erased: tasks whose texts were removed.
    """

    journal: str
    number: int
    last_batch: int
    chain: str
    published_ms: int
    files: tuple[EventsFile, ...]
    erased: tuple[ErasedTask, ...] = ()

    @property
    def events(self) -> int:
        """Number of events in the files."""
        return sum(file.events for file in self.files)

    def to_json(self) -> dict[str, object]:
        """Return the manifest in its stored form."""
        return {**asdict(self), "format": FORMAT}

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> Generation:
        """Return the manifest that `to_json` made.

        Raises:
            JournalRefused: the format is unknown, or a field is missing or malformed.
        """
        if stored.get("format") != FORMAT:
            raise JournalRefused(
                f"the generation has format {stored.get('format')}, this release reads {FORMAT}"
            )
        try:
            return cls(
                journal=json_text(stored["journal"]),
                number=json_number(stored["number"]),
                last_batch=json_number(stored["last_batch"]),
                chain=json_text(stored["chain"]),
                published_ms=json_number(stored["published_ms"]),
                files=tuple(_file(json_object(one)) for one in json_list(stored["files"])),
                erased=tuple(_erased(json_object(one)) for one in json_list(stored["erased"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise JournalRefused(f"a damaged generation: {error!r}") from error


def _file(found: Mapping[str, object]) -> EventsFile:
    return EventsFile(
        json_text(found["path"]),
        json_number(found["events"]),
        json_number(found["bytes"]),
        json_text(found["sha256"]),
        json_number(found["first_ms"]),
        json_number(found["last_ms"]),
    )


def _erased(found: Mapping[str, object]) -> ErasedTask:
    return ErasedTask(
        json_text(found["tube"]), json_number(found["task_id"]), json_number(found["at_ms"])
    )
