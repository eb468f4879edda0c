"""Settings of the disk, the log and the state of a node."""

from __future__ import annotations

from typing import Final

from pydantic import Field
from pydantic_settings import BaseSettings

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
TIB: Final = 1024 * GIB
ENTRY_COMMANDS_BYTES_MAX: Final = 32 * MIB
"""Maximum of `entry_bytes_max`. An entry with this size, one more command of the largest size, and
the takes of waiting consumers stays below the largest entry that the log can read. A test checks
the sum."""


class StorageSettings(BaseSettings):
    """Bounds of the log and of the state, in memory and on disk, and times for a slow disk."""

    # -------------------------------------------------------------------- Slow disks

    disk_stall_ms: int = Field(default=500, ge=2, le=60_000)
    """Time without an answer of the disk after which a leader transfers its leadership, if a
    majority of the other members has stored the oldest entry that this disk has not stored. A node
    with a stalled disk does not campaign and is not ready. Rounded to ticks."""
    disk_hang_ms: int = Field(default=30_000, ge=1_000, le=3_600_000)
    """Time without an answer of the disk after which the node stops with exit status 70."""

    # -------------------------------------------------------------------- Scrubber

    scrub_period_ms: int = Field(default=21_600_000, ge=1_000, le=31 * 86_400_000)
    """Time from the end of one pass of the scrubber to the start of the next. A pass reads the log
    and the state again and checks them, with at most 2 % of a core and 32 MiB per second."""

    compare_period_ms: int = Field(default=3_600_000, ge=1_000, le=31 * 86_400_000)
    """Time between two comparisons of the state between the members. The first comparison of a
    leader begins after at most 60 s."""

    # -------------------------------------------------------------------- Log

    entry_bytes_max: int = Field(default=4 * MIB, ge=1024, le=ENTRY_COMMANDS_BYTES_MAX)
    """Size at which the leader closes a log entry. A larger command gets an entry of its own."""
    entry_commands_max: int = Field(default=1_000, ge=1, le=100_000)
    """Maximum number of client commands in one log entry."""
    entries_in_flight_max: int = Field(default=4, ge=1, le=64)
    """Maximum number of log entries that the leader proposes before the first of them is applied.
    A further entry waits until the one before is committed, unless the load fills entries."""
    log_segment_bytes: int = Field(default=16 * MIB, ge=4096, le=GIB)
    """Size at which a new segment file of the log begins."""
    log_flush_bytes: int = Field(default=16 * MIB, ge=4096, le=64 * GIB)
    """Amount of log after which the state is flushed to disk. Older log may then be deleted. A
    start replays about this much log."""
    log_flush_entries: int = Field(default=10_000, ge=100, le=100_000_000)
    """Number of log entries after which the state is flushed to disk. A start replays about this
    many entries. The replay of 10 000 entries takes 0.3 s of CPU time in total, if each entry has
    one put."""
    log_kept_entries: int = Field(default=10_000, ge=0, le=1_000_000_000)
    """Number of applied log entries to keep for followers that lag behind. A follower that lags
    further gets a snapshot."""
    log_kept_bytes: int = Field(default=128 * MIB, ge=0, le=64 * GIB)
    """Maximum total size of the entries that `log_kept_entries` keeps. A start reads the whole
    log."""

    # -------------------------------------------------------------------- State in RocksDB

    collect_entries: int = Field(default=256, ge=1, le=1_000_000)
    """Maximum number of log entries whose changes are written to RocksDB in one batch. A larger
    value saves writes of short-lived tasks. The event loop collects a batch in steps of 500
    tasks."""
    collect_ms: int = Field(default=500, ge=1, le=600_000)
    """Maximum time between two batches that are written to RocksDB. With 500 ms, short-lived tasks
    take one eighth less CPU time than with 100 ms."""
    block_cache_bytes: int = Field(default=64 * MIB, ge=MIB, le=TIB)
    """Size of the RocksDB block cache in memory."""
    write_buffer_bytes: int = Field(default=32 * MIB, ge=MIB, le=16 * GIB)
    """Size of one RocksDB write buffer in memory; at most four exist at a time."""
