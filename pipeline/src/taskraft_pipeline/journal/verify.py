"""Verify that a journal holds every event of its range exactly once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from taskraft_pipeline.errors import JournalRefused
from taskraft_pipeline.journal.batch_content import inspect
from taskraft_pipeline.journal.manifest import manifest_problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from taskraft_pipeline.journal.journal import Journal
    from taskraft_pipeline.journal.manifest import Manifest


@dataclass(slots=True)
class Verification:
    """Result of a verification.

    Attributes:
        feed_id: id of the feed.
        start: start position of the journal.
        next_seq: end position of the journal.
        batches: number of batches.
        events: number of events.
        problems: missing, duplicate or damaged data; empty if the journal is complete.
        notes: harmless findings, such as files of a killed export.
    """

    feed_id: str
    start: Mapping[int, int]
    next_seq: Mapping[int, int]
    batches: int = 0
    events: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify(journal: Journal, *, is_deep: bool = False) -> Verification:
    """Check the ranges of the manifests and the sizes of the files.

    Args:
        journal: journal to check.
        is_deep: also read every file, and check its checksum and sequence numbers.

    Raises:
        JournalRefused: there is no journal, or a description or manifest is damaged.
    """
    start = journal.start()
    verdict = Verification(start.feed_id, start.next_seq, start.next_seq)
    queries = set()
    for manifest in journal.manifests():
        if manifest.batch != verdict.batches:
            verdict.problems.append(f"batch {verdict.batches}: the manifest is missing")
        verdict.problems += manifest_problems(manifest, verdict.next_seq)
        verdict.problems += file_problems(journal, manifest)
        if is_deep:
            verdict.problems += content_problems(journal, manifest)
        queries.add(manifest.query)
        verdict.next_seq = manifest.next_seq
        verdict.batches = manifest.batch + 1
        verdict.events += manifest.events
    if len(queries) > 1:
        verdict.problems.append(
            f"{len(queries)} different queries have written batches: {sorted(queries)}"
        )
    span = sum(verdict.next_seq.values()) - sum(start.next_seq.values())
    if span != verdict.events:
        verdict.problems.append(
            f"the range has {span} events, but the batches have {verdict.events}"
        )
    verdict.problems += commits_without_batch(journal, verdict.batches)
    verdict.notes += leftovers(journal, verdict.batches)
    return verdict


def file_problems(journal: Journal, manifest: Manifest) -> list[str]:
    """Return the files of a batch that are missing or have another size."""
    found = []
    for file in manifest.files:
        path = journal.root / file.path
        if not path.exists():
            found.append(f"batch {manifest.batch}: {file.path} is missing")
        elif path.stat().st_size != file.bytes:
            found.append(f"batch {manifest.batch}: {file.path} does not have {file.bytes} bytes")
    return found


def content_problems(journal: Journal, manifest: Manifest) -> list[str]:
    """Return how the content of the files differs from the manifest."""
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
    done = [int(path.name) for path in folder.glob("*") if path.name.isdecimal()]
    return [
        f"batch {batch}: committed in Spark's checkpoint, but the manifest is missing"
        for batch in sorted(done)
        if batch >= batches
    ]


def leftovers(journal: Journal, batches: int) -> list[str]:
    """Return the batch folders without a manifest, which the next export overwrites."""
    folders = sorted((journal.root / "raw").glob("batch=*"))
    return [
        f"{folder.name}: not published yet"
        for folder in folders
        if int(folder.name.removeprefix("batch=")) >= batches
    ]
