"""Define the limits on the size of the queue and on the work of one log entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OBJECT_LIMITS: Final = (
    "tubes_max",
    "tubes_share_max",
    "sessions_max",
    "sessions_share_max",
    "schedules_max",
    "schedules_share_max",
    "groups_max",
    "groups_share_max",
    "consumers_max",
    "consumers_share_max",
    "bulk_sweeps_open_max",
    "bulk_sweeps_share_max",
)
"""Names of the limits on numbers of objects. A limit whose name ends with ``share_max`` is for each
principal; the others are for the cluster."""


@dataclass(slots=True, frozen=True)
class Limits:
    """Limits of one queue; each is at least 1.

    The limits before the blank line affect results, so all replicas must use the same values. The
    limits after the blank line affect only memory use and may differ between nodes.
    """

    tubes_max: int = 16_000
    tubes_share_max: int = 12_000
    """Maximum number of tubes that one principal has created."""
    sessions_max: int = 100_000
    sessions_share_max: int = 75_000
    """Maximum number of open sessions of one principal."""
    session_taken_max: int = 100_000
    """Maximum number of leases that one session holds; a take beyond this maximum returns no task.
    """
    session_ttr_min_ms: int = 1_000
    """Minimum TTR of a session that sends heartbeats, in milliseconds."""
    schedules_max: int = 20_000
    schedules_share_max: int = 15_000
    """Maximum number of schedules of one principal."""
    groups_max: int = 20_000
    groups_share_max: int = 15_000
    """Maximum number of groups of one principal."""
    consumers_max: int = 1_000
    """Maximum number of change feed consumers whose positions are stored."""
    consumers_share_max: int = 750
    """Maximum number of such consumers that one principal has created."""
    group_retention_ms: int = 86_400_000
    """Time in milliseconds for which an ended group is kept; ``groups_max`` and
    ``groups_share_max`` may shorten it."""
    failures_max: int = 100_000
    """Maximum number of failure records of deleted tasks."""
    failure_retention_ms: int = 86_400_000
    """Time in milliseconds for which a failure record is kept; ``failures_max`` may shorten it."""
    audit_records_max: int = 100_000
    """Maximum number of records of acts of management."""
    audit_retention_ms: int = 90 * 86_400_000
    """Time in milliseconds for which a record of an act is kept; ``audit_records_max`` may shorten
    it."""
    bulk_sweeps_open_max: int = 100
    """Maximum number of bulk sweeps that run or wait."""
    bulk_sweeps_share_max: int = 75
    """Maximum number of such sweeps of one principal."""
    bulk_sweeps_running_max: int = 4
    bulk_sweeps_kept_max: int = 1_000
    """Maximum number of ended bulk sweeps that are kept."""
    bulk_retention_ms: int = 30 * 86_400_000
    """Time in milliseconds for which an ended bulk sweep is kept.

    ``bulk_sweeps_kept_max`` may shorten this time.
    """
    steps_alone_max: int = 70
    """Maximum number of steps of long work in an entry without commands; see ``EntrySteps``.

    The leader proposes such entries until the work is done.
    """
    steps_beside_max: int = 25
    """Maximum number of steps of long work in an entry with commands. The number is lower, because
    the commands wait.
    """
    steps_max: int = 1_000
    """Maximum number of steps of an entry whose commands make more events than the entry has steps.
    """
    records_forgotten_max: int = 1_000
    """Maximum number of old records of each kind that an entry deletes."""
    kick_tasks_max: int = 1_000
    command_content_bytes_max: int = 16 * 1024 * 1024
    """Content of tasks in bytes that one command changes or moves, in about 15 ms.

    The old and the new content of a change count, and 1 KiB for each header. The task that reaches
    this maximum is the last one. The content of a put does not count.
    """
    selector_scan_max: int = 5_000
    """Maximum number of tasks that a command with a filter scans in one entry.

    The result has the id after which to continue.
    """
    passed_max: int = 5_000
    """Maximum number of unsuitable tasks that a take skips; the result shows if it was reached.

    The tubes of one take share this maximum equally.
    """
    requests_max: int = 10_000_000
    """Maximum number of remembered request ids; at the maximum, the older half is deleted."""
    request_window_ms: int = 600_000
    """Minimum time in milliseconds for which a request id is remembered; the maximum is double.

    ``requests_max`` may shorten this time.
    """

    head_entries_max: int = 8_192
    """Maximum number of entries of an ordered index in memory; the store has the other entries."""
    read_tasks_max: int = 64
    """Maximum number of ready tasks that a take loads together when a task is not in memory."""
    ahead_tasks_max: int = 4_096
    """Maximum number of ready tasks of one tube that are prefetched after a batch of writes."""
    subqueue_entries_max: int = 64
    """Maximum number of entries of one sub-queue in memory."""
    subqueues_max: int = 4_096
    """Maximum number of sub-queues of one tube with entries in memory; busy ones do not count."""
    type_entries_max: int = 64
    """Minimum number of entries in memory for one task type of one tube, while takes select the
    type."""
    types_max: int = 256
    """Maximum number of task types of one tube with entries in memory: those of the last takes."""
    evicted_max: int = 1_000
    """Maximum number of tasks of truncated and dropped tubes that an entry evicts from memory."""
    resident_bytes_max: int = 64 * 1024 * 1024
    """Maximum bytes of task content in memory; above the maximum, stored tasks are evicted."""
    feed_chunk_rows_max: int = 4_096

    def __post_init__(self) -> None:
        """Check that each limit has at least its smallest usable value."""
        for name in self.__slots__:
            assert getattr(self, name) >= 1, name
        assert self.head_entries_max >= 2
        assert self.subqueue_entries_max >= 2
        assert self.type_entries_max >= 2
