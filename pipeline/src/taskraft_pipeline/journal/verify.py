"""Verify that a journal holds every event of its range exactly once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.errors import JournalRefused
from taskraft_pipeline.journal.batch_content import inspect
from taskraft_pipeline.journal.generation_check import generation_problems
from taskraft_pipeline.journal.journal import numbered_folders
from taskraft_pipeline.journal.manifest import manifest_problems

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from taskraft_pipeline.feed import Feed
    from taskraft_pipeline.journal.generation import Generation
    from taskraft_pipeline.journal.journal import Journal
    from taskraft_pipeline.journal.manifest import Manifest


OWN_NAMES: Final = frozenset(
    ("_journal.json", "_manifests", "_checkpoint", "_lock", "_lock.compaction", "raw", "events")
)
"""Names in the folder of a journal."""


@dataclass(slots=True)
class Verification:
    """Result of a verification.

    Attributes:
        feed_id: id of the feed.
        start: start position of the journal.
        next_seq: end position of the journal.
        is_deep: whether the content of the files was read.
        batches: number of batches.
        events: number of events.
        events_lost: number of events that retention removed before they were exported.
        chain: digest of the whole journal: the chain of the last manifest; empty without a batch.
        problems: missing, duplicate or damaged data; empty if none was found.
        notes: harmless findings, such as files of a killed export.
    """

    feed_id: str
    start: Mapping[int, int]
    next_seq: Mapping[int, int]
    is_deep: bool = False
    batches: int = 0
    events: int = 0
    events_lost: int = 0
    chain: str = ""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def conclusion(self) -> str:
        """Sentence about the result of the verification."""
        if self.problems:
            return "with problems"
        if not self.batches:
            return "empty, so nothing is verified"
        lost = f", except {self.events_lost:,} events that retention removed before the export"
        lost = lost if self.events_lost else ""
        if self.is_deep:
            return f"the files have every event exactly once{lost}"
        return (
            f"the manifests name every event exactly once{lost}, and the files have their sizes;"
            " the content of the files was not read (--deep reads it)"
        )


def verify(journal: Journal, *, is_deep: bool = False) -> Verification:
    """Check identity, ranges and chain of the manifests, and names and sizes of the files.

    Args:
        journal: journal to check.
        is_deep: also read every file, and check its digest and sequence numbers.

    Raises:
        JournalRefused: there is no journal, or a description or manifest is damaged.
    """
    start, name = journal.start(), journal.id()
    generation = journal.generation()
    last_replaced = generation.last_batch if generation else -1
    replaced: list[Manifest] = []
    verdict = Verification(start.feed_id, start.next_seq, start.next_seq, is_deep)
    query = ""
    for manifest in journal.manifests():
        if manifest.batch != verdict.batches:
            verdict.problems.append(f"batch {verdict.batches}: the manifest is missing")
        if manifest.journal != name:
            verdict.problems.append(f"batch {manifest.batch}: belongs to another journal")
        if manifest != manifest.chained(verdict.chain):
            verdict.problems.append(
                f"batch {manifest.batch}: this manifest or an earlier manifest was changed"
            )
        verdict.problems += manifest_problems(manifest, verdict.next_seq)
        if manifest.batch <= last_replaced:
            replaced.append(manifest)
        else:
            verdict.problems += batch_problems(journal, manifest, is_deep=is_deep)
        if query and manifest.query != query:
            verdict.notes.append(f"batch {manifest.batch}: the first batch of a new checkpoint")
        verdict.notes += loss_notes(manifest)
        query, verdict.chain = manifest.query, manifest.chain
        verdict.next_seq = manifest.next_seq
        verdict.batches = manifest.batch + 1
        verdict.events += manifest.events
        verdict.events_lost += manifest.events_lost
    span = sum(verdict.next_seq.values()) - sum(start.next_seq.values())
    if span != verdict.events + verdict.events_lost:
        verdict.problems.append(
            f"the range has {span} events, but the batches have {verdict.events}"
        )
    if generation is not None:
        verdict.problems += generation_problems(journal, generation, replaced, is_deep=is_deep)
        verdict.notes += generation_notes(generation)
    verdict.problems += commits_without_batch(journal, verdict.batches)
    verdict.notes += leftovers(journal, verdict.batches, generation.number if generation else 0)
    if verdict.batches and not journal.has_checkpoint():
        verdict.notes.append(
            "the checkpoint is lost; the next export continues after the last batch"
        )
    return verdict


def batch_problems(journal: Journal, manifest: Manifest, *, is_deep: bool) -> list[str]:
    """Return the problems of the files of a batch; their content is read with ``is_deep``."""
    found = file_problems(journal, manifest)
    return found + content_problems(journal, manifest) if is_deep else found


def generation_notes(generation: Generation) -> list[str]:
    """Return what a generation contains, and which tasks were erased."""
    files = f"{len(generation.files)} files of generation {generation.number}"
    found = [f"batches 0 to {generation.last_batch} are compacted into {files}"]
    if generation.erased:
        found.append(f"the texts of {len(generation.erased)} tasks were erased")
    return found


def loss_notes(manifest: Manifest) -> list[str]:
    """Return the gaps that a manifest records."""
    return [
        f"batch {manifest.batch}: retention removed the events {lost.first_seq} to {lost.last_seq}"
        f" of partition {partition} before the export"
        for partition, lost in sorted(manifest.lost.items())
    ]


def file_problems(journal: Journal, manifest: Manifest) -> list[str]:
    """Return files that are missing, have another size, or are not in the manifest."""
    named = {file.path for file in manifest.files}
    found = [
        f"batch {manifest.batch}: {path} is not in the manifest"
        for path in parquet_files(journal.batch_folder(manifest.batch), journal.root)
        if path not in named
    ]
    for file in manifest.files:
        path = journal.root / file.path
        if not path.exists():
            found.append(f"batch {manifest.batch}: {file.path} is missing")
        elif path.stat().st_size != file.bytes:
            found.append(f"batch {manifest.batch}: {file.path} does not have {file.bytes} bytes")
    return found


def parquet_files(folder: Path, root: Path) -> list[str]:
    """Return the Parquet files of a folder, as paths relative to the journal."""
    return sorted(path.relative_to(root).as_posix() for path in folder.rglob("*.parquet"))


def content_problems(journal: Journal, manifest: Manifest) -> list[str]:
    """Return the differences between the content of the files and the manifest."""
    try:
        content = inspect(journal.batch_folder(manifest.batch), journal.root)
    except (JournalRefused, OSError, ValueError) as error:  # pyarrow's errors are among these
        return [f"batch {manifest.batch}: {error}"]
    found = []
    if content.files != manifest.files:
        found.append(f"batch {manifest.batch}: the files differ from the written files")
    if content.held != manifest.held:
        found.append(f"batch {manifest.batch}: the files hold {content.held}")
    return found


def commits_without_batch(journal: Journal, batches: int) -> list[str]:
    """Return the batches that Spark has committed but that have no manifest."""
    folder = journal.checkpoint / "commits"
    first = journal.first_batch()
    done = [first + int(path.name) for path in folder.glob("*") if path.name.isdecimal()]
    return [
        f"batch {batch}: committed in Spark's checkpoint, but the manifest is missing"
        for batch in sorted(done)
        if batch >= batches
    ]


def leftovers(journal: Journal, batches: int, generation: int) -> list[str]:
    """Return stray files, and folders of batches and generations that are not published yet."""
    stray = [path for path in journal.root.glob("*") if path.name not in OWN_NAMES]
    unpublished = []
    for name, prefix, last in (("raw", "batch=", batches - 1), ("events", "gen=", generation)):
        folders = numbered_folders(journal.root / name, prefix)
        known = {path for _, path in folders}
        stray += [path for path in (journal.root / name).glob("*") if path not in known]
        for number, folder in folders:
            if number > last:
                unpublished.append(f"{folder.name}: not published yet")
            else:
                stray += [path for path in folder.rglob("*") if is_foreign(path)]
    named = sorted(path.relative_to(journal.root).as_posix() for path in stray)
    return [f"{path}: does not belong to the journal" for path in named] + unpublished


def is_foreign(path: Path) -> bool:
    """Return whether a file is neither a Parquet file nor one of Spark's own files beside it."""
    return path.is_file() and path.suffix != ".parquet" and not path.name.startswith((".", "_"))


def feed_problems(verdict: Verification, feed: Feed) -> list[str]:
    """Return why a journal does not belong to the feed of a cluster."""
    if verdict.feed_id != feed.feed_id:
        return [f"the journal is of feed {verdict.feed_id}, the cluster has feed {feed.feed_id}"]
    return [
        f"the journal has events of partition {partition} up to {seq - 1}, the cluster has events"
        f" up to {feed.high.get(partition, 0) - 1}"
        for partition, seq in sorted(verdict.next_seq.items())
        if seq > feed.high.get(partition, 0)
    ]
