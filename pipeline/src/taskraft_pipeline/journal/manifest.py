"""The manifest of a batch, and the check that batches follow each other."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.errors import JournalRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = 3
"""Format version of manifests and of `_journal.json`; other versions are refused."""


@dataclass(slots=True, frozen=True)
class HeldRange:
    """Events of one partition in a batch: first_seq to last_seq, both included."""

    first_seq: int
    last_seq: int
    events: int


@dataclass(slots=True, frozen=True)
class LostRange:
    """Events of one partition that retention removed before the export read them.

    Both bounds are included.
    """

    first_seq: int
    last_seq: int

    @property
    def events(self) -> int:
        """Number of lost events."""
        return self.last_seq - self.first_seq + 1


@dataclass(slots=True, frozen=True)
class DataFile:
    """A Parquet file; its path is relative to the journal, its digest is SHA-256 in hexadecimal."""

    path: str
    events: int
    bytes: int
    sha256: str


@dataclass(slots=True, frozen=True)
class Manifest:
    """The content of one batch.

    Attributes:
        journal: id of the journal.
        batch: number of the batch, from 0, without gaps.
        query: id of the Spark query that wrote the batch; a new checkpoint means a new id.
        held: range by partition; partitions without events in this batch are absent.
        next_seq: position after the batch, in all partitions.
        first_ms: time of the oldest event in ms, 0 without events.
        last_ms: time of the newest event in ms, 0 without events.
        files: data files, ordered by path.
        lost: events that retention removed before they were exported, by partition.
        chain: SHA-256 over the chain of the previous manifest and the rest of this manifest; empty
            until ``chained``. The last chain therefore identifies the whole journal.
    """

    journal: str
    batch: int
    query: str
    held: Mapping[int, HeldRange]
    next_seq: Mapping[int, int]
    first_ms: int
    last_ms: int
    files: tuple[DataFile, ...]
    lost: Mapping[int, LostRange] = field(default_factory=dict)
    chain: str = ""

    @property
    def events(self) -> int:
        """Number of events in the batch."""
        return sum(held.events for held in self.held.values())

    @property
    def events_lost(self) -> int:
        """Number of events that retention removed before they were exported."""
        return sum(lost.events for lost in self.lost.values())

    def chained(self, previous: str) -> Manifest:
        """Return the manifest with its chain; ``previous`` is the chain of the batch before."""
        content = json.dumps({**self.to_json(), "chain": previous}, sort_keys=True)
        return replace(self, chain=hashlib.sha256(content.encode()).hexdigest())

    def to_json(self) -> dict[str, object]:
        """Return the manifest in its stored form."""
        return {
            "format": FORMAT,
            "journal": self.journal,
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
            "lost": {
                str(one): [lost.first_seq, lost.last_seq] for one, lost in sorted(self.lost.items())
            },
            "chain": self.chain,
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
                journal=json_text(stored["journal"]),
                batch=json_number(stored["batch"]),
                query=json_text(stored["query"]),
                held={int(one): _held(held) for one, held in json_object(stored["ranges"]).items()},
                next_seq={
                    int(one): json_number(seq)
                    for one, seq in json_object(stored["next_seq"]).items()
                },
                first_ms=json_number(stored["first_ms"]),
                last_ms=json_number(stored["last_ms"]),
                files=tuple(_file(json_object(file)) for file in json_list(stored["files"])),
                lost={int(one): _lost(lost) for one, lost in json_object(stored["lost"]).items()},
                chain=json_text(stored["chain"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise JournalRefused(f"a damaged manifest: {error!r}") from error


def json_number(found: object) -> int:
    """Return a number of a stored manifest; raise TypeError for another value."""
    if not isinstance(found, int):
        raise TypeError(f"{found!r} is not a number")
    return found


def json_text(found: object) -> str:
    """Return a string of a stored manifest; raise TypeError for another value."""
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is not a string")
    return found


def json_list(found: object) -> list[object]:
    """Return a list of a stored manifest; raise TypeError for another value."""
    if not isinstance(found, list):
        raise TypeError(f"{found!r} is not a list")
    return found


def json_object(found: object) -> dict[str, object]:
    """Return an object of a stored manifest; raise TypeError for another value."""
    if not isinstance(found, dict):
        raise TypeError(f"{found!r} is not an object")
    return found


def _held(found: object) -> HeldRange:
    first_seq, last_seq, events = map(json_number, json_list(found))
    return HeldRange(first_seq, last_seq, events)


def _lost(found: object) -> LostRange:
    first_seq, last_seq = map(json_number, json_list(found))
    return LostRange(first_seq, last_seq)


def _file(found: Mapping[str, object]) -> DataFile:
    return DataFile(
        json_text(found["path"]),
        json_number(found["events"]),
        json_number(found["bytes"]),
        json_text(found["sha256"]),
    )


def manifest_problems(manifest: Manifest, begin: Mapping[int, int]) -> list[str]:
    """Return why a batch does not have exactly the events from ``begin`` to its ``next_seq``.

    Lost events that the manifest records count as present.

    Args:
        manifest: manifest of the batch.
        begin: position after the previous batch; missing partitions begin at 0.
    """
    found = []
    for partition in sorted({*begin, *manifest.next_seq, *manifest.held, *manifest.lost}):
        first_seq = begin.get(partition, 0)
        if partition in manifest.lost:
            lost = manifest.lost[partition]
            if lost.first_seq != first_seq or lost.events < 1:
                found.append(f"partition {partition} continues at {first_seq}, but lost {lost}")
            first_seq = lost.last_seq + 1
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
