"""Bound the changes that are collected before they are written to RocksDB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COLLECT_TASKS: Final = 4_000
"""Number of changed tasks that triggers a batch; its last step takes up to 10 ms. A smaller number
costs more in all, because a task that is put, taken and acknowledged between two batches is never
written."""
FRESH_TASKS: Final = 1_500
"""Number of new tasks, not taken yet, that triggers a batch; its last step takes 2 ms. Such
tasks are probably not taken soon, so a larger number would save nothing."""
COLLECT_BYTES: Final = 16 * 1024 * 1024
"""Size of the entries that triggers a batch, because the write copies each payload twice."""
BACKLOG_ENTRIES: Final = 32
"""Number of entries in one call of ``apply`` which shows that further entries wait. Batches then
have more entries, because each batch has fixed costs; ``COLLECT_TASKS`` bounds them."""
POSTPONED_BATCHES_MAX: Final = 16
POSTPONED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum number of postponed batches, and maximum total size of their entries. Beyond these
limits, entries are applied only after the disk has caught up."""


@dataclass(slots=True, frozen=True)
class CollectPolicy:
    """Limits of the changes that are collected before they are written to RocksDB.

    A batch is written when the first limit is reached. A batch can be postponed, because the log
    has all changes: the machine postpones a batch that RocksDB would block. After
    ``POSTPONED_BYTES_MAX``, entries wait for the disk instead.
    """

    entries: int
    """Number of entries since the last batch; unlimited while a backlog is applied."""
    span_ms: int
    """Time since the last batch."""
    tasks: int = COLLECT_TASKS
    """Number of changed tasks; it bounds the last step of a batch."""
    fresh: int = FRESH_TASKS
    """Number of new tasks that were not taken yet; it bounds the last step while tasks are put, and
    is unlimited while a backlog is applied."""
    content_bytes: int = COLLECT_BYTES
    """Size of the entries since the last batch; it bounds the last step if payloads are large."""
