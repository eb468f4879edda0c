"""The manifest of a batch, and the check that batches follow each other."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.errors import JournalRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = 1
"""Format version of manifests and of `_journal.json`; other versions are refused."""


@dataclass(slots=True, frozen=True)
class HeldRange:
    """Events of one partition in a batch: first_seq to last_seq, both included."""

    first_seq: int
    last_seq: int
    events: int


@dataclass(slots=True, frozen=True)
class DataFile:
    """A Parquet file; its path is relative to the journal."""

    path: str
    events: int
    bytes: int
    crc32: int


@dataclass(slots=True, frozen=True)
class Manifest:
    """The content of one batch.

    Attributes:
        batch: number of the batch, from 0, without gaps.
        query: id of the Spark query that wrote the batch; a new checkpoint means a new id.
        held: range by partition; partitions without events in this batch are absent.
        next_seq: position after the batch, in all partitions.
        first_ms: time of the oldest event in ms, 0 without events.
        last_ms: time of the newest event in ms, 0 without events.
        files: data files, ordered by path.
    """

    batch: int
    query: str
    held: Mapping[int, HeldRange]
    next_seq: Mapping[int, int]
    first_ms: int
    last_ms: int
    files: tuple[DataFile, ...]

    @property
    def events(self) -> int:
        """Number of events in the batch."""
        return sum(held.events for held in self.held.values())

    def to_json(self) -> dict[str, object]:
        """Return the manifest in its stored form."""
        return {
            "format": FORMAT,
            "batch": self.batch,
            "query": self.query,
            "ranges": {
                str(one): [held.first_seq, held.last_seq, held.events]
                for one, held in sorted(self.held.items())
            },
            "next_seq": {str(one): seq for one, seq in sorted(self.next_seq.items())},
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "files": [asdict(file) for file in self.files],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> Manifest:
        """Return the manifest that `to_json` made.

        Raises:
            JournalRefused: the format is unknown, or a field is missing or malformed.
        """
        if stored.get("format") != FORMAT:
            raise JournalRefused(
                f"the manifest has format {stored.get('format')}, this release reads {FORMAT}"
            )
        try:
            return cls(
                batch=_number(stored["batch"]),
                query=_text(stored["query"]),
                held={int(one): _held(held) for one, held in _object(stored["ranges"]).items()},
                next_seq={
                    int(one): _number(seq) for one, seq in _object(stored["next_seq"]).items()
                },
                first_ms=_number(stored["first_ms"]),
                last_ms=_number(stored["last_ms"]),
                files=tuple(_file(_object(file)) for file in _list(stored["files"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise JournalRefused(f"a damaged manifest: {error!r}") from error


def _number(found: object) -> int:
    if not isinstance(found, int):
        raise TypeError(f"{found!r} is not a number")
    return found


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is not a string")
    return found


def _list(found: object) -> list[object]:
    if not isinstance(found, list):
        raise TypeError(f"{found!r} is not a list")
    return found


def _object(found: object) -> dict[str, object]:
    if not isinstance(found, dict):
        raise TypeError(f"{found!r} is not an object")
    return found


def _held(found: object) -> HeldRange:
    first_seq, last_seq, events = map(_number, _list(found))
    return HeldRange(first_seq, last_seq, events)


def _file(found: Mapping[str, object]) -> DataFile:
    events, size, crc32 = (_number(found[name]) for name in ("events", "bytes", "crc32"))
    return DataFile(_text(found["path"]), events, size, crc32)


def manifest_problems(manifest: Manifest, begin: Mapping[int, int]) -> list[str]:
    """Return why a batch does not hold exactly the events from ``begin`` to its next_seq.

    Args:
        manifest: manifest of the batch.
        begin: position after the previous batch; missing partitions begin at 0.
    """
    found = []
    for partition in sorted({*begin, *manifest.next_seq, *manifest.held}):
        first_seq = begin.get(partition, 0)
        reached = first_seq
        if partition in manifest.held:
            held = manifest.held[partition]
            reached = held.last_seq + 1
            if reached - held.first_seq != held.events:
                found.append(f"{held.events} events of partition {partition} in {held}")
            if held.first_seq != first_seq:
                found.append(f"partition {partition} begins at {held.first_seq}, not {first_seq}")
        claimed = manifest.next_seq.get(partition)
        if claimed != reached:
            found.append(f"partition {partition} ends at {reached}, its manifest claims {claimed}")
    in_files = sum(file.events for file in manifest.files)
    if in_files != manifest.events:
        found.append(f"{in_files} events in its files, {manifest.events} in its ranges")
    return [f"batch {manifest.batch}: {problem}" for problem in found]
