"""Choose settings of a run that are not faults: how far the state lags, how logs are trimmed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from taskraft_replication.driver.disk_watch import DiskPolicy
from taskraft_replication.driver.driver import StoragePolicy
from taskraft_replication.driver.trimmer import TrimPolicy

NEVER_BYTES = 1 << 40

TRIMMING = (
    ((3000, 20_000), (0, 5, 50), (2048, 4096, 16_384)),
    ((3000, 20_000), (0, 5, 50), (600, 1000)),
    ((300, 1000), (0,), (600, 1000)),
    ((NEVER_BYTES, 3000), (0, 50), (600, 4096)),
    ((NEVER_BYTES,), (0,), (600, 4096)),
)
"""Trim policies: sometimes, with small segments, continuously, and never.

With continuous trimming a lagging member needs a snapshot. Without trimming a start applies the
whole log.
"""


@dataclass(slots=True, frozen=True)
class RunProfile:
    """Settings that all members of a run share; each start chooses among the values."""

    flush_bytes: tuple[int, ...]
    """Bytes of log that are written until the state is made durable."""
    kept_entries: tuple[int, ...]
    segment_bytes: tuple[int, ...]
    newcomers_max: int
    """Maximum number of members that join."""
    idle_share: float
    """Share of calls without commands, which fill the log cheaply."""
    long_share: float
    """Share of frames with entries that take long to arrive, and that other messages overtake."""
    disk: DiskPolicy
    """Limits of the time that a disk may take."""

    def storage_policy(self, rng: Random) -> StoragePolicy:
        """Return when a member makes its state durable and trims its log, for one start."""
        trim = TrimPolicy(rng.choice(self.flush_bytes), rng.choice(self.kept_entries))
        return StoragePolicy(trim, self.disk)


def draw_profile(rng: Random) -> RunProfile:
    """Draw the settings of a run."""
    flush_bytes, kept_entries, segment_bytes = rng.choice(TRIMMING)
    return RunProfile(
        flush_bytes,
        kept_entries,
        segment_bytes,
        newcomers_max=rng.choice((4, 4, 12)),
        idle_share=rng.choice((0.0, 0.8, 0.8)),
        disk=DiskPolicy(rng.choice((2, 10, 10)), rng.choice((100, 600))),
        long_share=rng.choice((0.0, 0.0, 0.3)),
    )
