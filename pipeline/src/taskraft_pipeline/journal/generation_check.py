"""Check the compacted files of a journal against the batches that they replace."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from taskraft_pipeline.journal.journal import numbered_folders
from taskraft_pipeline.journal.sequence_digest import SequenceDigest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft_pipeline.journal.generation import Generation
    from taskraft_pipeline.journal.journal import Journal
    from taskraft_pipeline.journal.manifest import Manifest


def generation_problems(
    journal: Journal, generation: Generation, replaced: Sequence[Manifest], *, is_deep: bool
) -> list[str]:
    """Return how a generation differs from the batches that it replaces.

    Args:
        journal: the journal.
        generation: the generation in force.
        replaced: manifests of the batches up to the last one of the generation.
        is_deep: also read every file, and check its digest and sequence numbers.
    """
    found = []
    if generation.journal != journal.id():
        found.append("belongs to another journal")
    last = replaced[-1] if replaced else None
    if last is None or (last.batch, last.chain) != (generation.last_batch, generation.chain):
        found.append(f"replaces batches up to {generation.last_batch} that were changed later")
    events = sum(manifest.events for manifest in replaced)
    if generation.events != events:
        found.append(f"has {generation.events} events, its batches have {events}")
    found += _file_problems(journal, generation)
    if is_deep and not found:
        found += _content_problems(journal, generation, replaced)
    return [f"generation {generation.number}: {problem}" for problem in found]


def _file_problems(journal: Journal, generation: Generation) -> list[str]:
    """Return files that are missing, have another size, or are in no generation."""
    found = []
    for file in generation.files:
        path = journal.root / file.path
        if not path.exists():
            found.append(f"{file.path} is missing")
        elif path.stat().st_size != file.bytes:
            found.append(f"{file.path} does not have {file.bytes} bytes")
    named = {file.path for one in journal.generations() for file in one.files}
    for number, folder in numbered_folders(journal.root / "events", "gen="):
        for path in sorted(folder.rglob("*.parquet")):
            place = path.relative_to(journal.root).as_posix()
            if place not in named and number <= generation.number:
                found.append(f"{place} is not in a manifest")
    return found


def _content_problems(
    journal: Journal, generation: Generation, replaced: Sequence[Manifest]
) -> list[str]:
    """Return how the content of the files differs from the manifests."""
    found = []
    held, expected = SequenceDigest(), SequenceDigest()
    expected.add_batches(replaced)
    for file in generation.files:
        path = journal.root / file.path
        if hashlib.sha256(path.read_bytes()).hexdigest() != file.sha256:
            found.append(f"{file.path} differs from the written file")
            continue
        held.add_file(path)
    differing = [] if found else held.differing(expected)
    if differing:
        found.append(f"the files do not have exactly the events of partitions {differing}")
    return found
