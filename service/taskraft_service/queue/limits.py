"""Bound what the queue holds and what one log entry may do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Limits:
    """Bounds of one queue.

    The first group decides results, so all replicas must have the same values. The second group
    decides only what is in memory: it may differ from node to node.
    """

    tubes_max: int = 10_000
    sessions_max: int = 100_000
    session_taken_max: int = 100_000
    """Leases of one session; a take beyond it finds nothing.

    Bounds the work when a session ends.
    """
    session_ttr_min_ms: int = 1_000
    """Least time of a session that is kept by heartbeats."""
    schedules_max: int = 10_000
    groups_max: int = 10_000
    consumers_max: int = 1_000
    """Consumers of the feed whose positions are kept."""
    group_tasks_per_entry_max: int = 1_000
    """Tasks that the start or the cancellation of a group deals with in one entry."""
    dependents_per_entry_max: int = 1_000
    """Tasks that are told in one entry that a task which they depend on has ended."""
    group_retention_ms: int = 86_400_000
    """A group is shown for so long after its end, if there is room for it."""
    failures_max: int = 100_000
    """Tasks that are gone whose failures are remembered."""
    failure_retention_ms: int = 86_400_000
    """How long, if there are not too many."""
    deadlines_per_entry_max: int = 1_000
    """Deadlines that fire in one entry; the leader proposes the next entry at once for the rest."""
    removals_per_entry_max: int = 500
    """Tasks of truncated and dropped tubes that are cleared away in an entry without commands."""
    removals_beside_max: int = 50
    """The same in an entry with commands, which wait for it."""
    kick_tasks_max: int = 10_000
    selector_scan_max: int = 5_000
    """Tasks that one command with a filter looks at; its answer says where to go on."""
    passed_max: int = 5_000
    """Tasks that a take with a bound of priorities passes by one by one; its answer says if it did.

    Tubes that are taken from together have equal shares.
    """
    requests_max: int = 10_000_000
    """Remembered request ids. At the bound the older half goes, whatever its age."""
    request_window_ms: int = 600_000
    """A request id is remembered for at least so long, and for at most twice as long."""

    head_entries_max: int = 8_192
    """Entries of one ordered index in memory; the others are in the store."""
    read_tasks_max: int = 64
    """Waiting tasks that a take reads along with one that is not in memory."""
    ahead_tasks_max: int = 4_096
    """Waiting tasks of a tube that are read ahead after a batch of writes."""
    subqueue_entries_max: int = 64
    """Entries of one sub-queue in memory."""
    subqueues_max: int = 4_096
    """Sub-queues of one tube whose entries are in memory; busy ones are known besides them."""
    type_entries_max: int = 64
    """Entries of one type of one tube in memory, at least; if takes ask for it."""
    types_max: int = 256
    """Types of one tube whose entries are in memory: those that takes asked for last."""
    resident_bytes_max: int = 64 * 1024 * 1024
    """Content of waiting tasks in memory; above it, tasks that are in the store are read again."""
    feed_chunk_rows_max: int = 4_096

    def __post_init__(self) -> None:
        """Check that every bound leaves room to work."""
        for name in self.__slots__:
            assert getattr(self, name) >= 1, name
        assert self.head_entries_max >= 2
        assert self.subqueue_entries_max >= 2
        assert self.type_entries_max >= 2
