"""Prove that a journal holds every event of its range exactly once, or say where it does not."""

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
    """What was found.

    Attributes:
        feed_id: the feed.
        start: the position at which the journal begins.
        next_seq: the position up to which it goes.
        batches: how many there are.
        events: how many it holds.
        problems: why it is not what it claims; empty: it is.
        notes: what is harmless, such as what a killed export left behind.
    """

    feed_id: str
    start: Mapping[int, int]
    next_seq: Mapping[int, int]
    batches: int = 0
    events: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify(journal: Journal, *, is_deep: bool = False) -> Verification:
    """Check the manifests by arithmetic and the files by their sizes.

    Args:
        journal: the journal.
        is_deep: read every file, too: its checksum, and each sequence number in it.

    Raises:
        JournalRefused: there is no journal, or a description or manifest is damaged.
    """
    start = journal.start()
    verdict = Verification(start.feed_id, start.next_seq, start.next_seq)
    queries = set()
    for manifest in journal.manifests():
        if manifest.batch != verdict.batches:
            verdict.problems.append(f"batch {verdict.batches}: there is no manifest")
        verdict.problems += manifest_problems(manifest, verdict.next_seq)
        verdict.problems += file_problems(journal, manifest)
        if is_deep:
            verdict.problems += content_problems(journal, manifest)
        queries.add(manifest.query)
        verdict.next_seq = manifest.next_seq
        verdict.batches = manifest.batch + 1
        verdict.events += manifest.events
    if len(queries) > 1:
        verdict.problems.append(f"{len(queries)} checkpoints were mixed: {sorted(queries)}")
    span = sum(verdict.next_seq.values()) - sum(start.next_seq.values())
    if span != verdict.events:
        verdict.problems.append(f"the range has {span} events, the batches {verdict.events}")
    verdict.problems += commits_without_batch(journal, verdict.batches)
    verdict.notes += leftovers(journal, verdict.batches)
    return verdict


def file_problems(journal: Journal, manifest: Manifest) -> list[str]:
    """Return which files of a batch are missing or of another size."""
    found = []
    for file in manifest.files:
        path = journal.root / file.path
        if not path.exists():
            found.append(f"batch {manifest.batch}: {file.path} is missing")
        elif path.stat().st_size != file.bytes:
            found.append(f"batch {manifest.batch}: {file.path} has not {file.bytes} bytes")
    return found


def content_problems(journal: Journal, manifest: Manifest) -> list[str]:
    """Return how the content of the files differs from what the manifest says."""
    try:
        content = inspect(journal.batch_folder(manifest.batch), journal.root)
    except (JournalRefused, OSError, ValueError) as error:  # pyarrow's errors are among these
        return [f"batch {manifest.batch}: {error}"]
    found = []
    if content.files != manifest.files:
        found.append(f"batch {manifest.batch}: the files are not those that were written")
    if content.held != manifest.held:
        found.append(f"batch {manifest.batch}: the files hold {content.held}")
    return found


def commits_without_batch(journal: Journal, batches: int) -> list[str]:
    """Return what Spark holds for done, though no manifest says so."""
    folder = journal.checkpoint / "commits"
    done = [int(path.name) for path in folder.glob("*") if path.name.isdecimal()]
    return [
        f"batch {batch}: committed in Spark's checkpoint, but there is no manifest"
        for batch in sorted(done)
        if batch >= batches
    ]


def leftovers(journal: Journal, batches: int) -> list[str]:
    """Return the folders that no manifest names: a killed export's, overwritten by the next."""
    folders = sorted((journal.root / "raw").glob("batch=*"))
    return [
        f"{folder.name}: not published yet"
        for folder in folders
        if int(folder.name.removeprefix("batch=")) >= batches
    ]
