"""Histograms of log entries: duration, number of commands, size."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Histogram

_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_COMMANDS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_BYTES: Final = tuple(64 * 4**power for power in range(9))


class EntryHistograms:
    """The histograms of all groups of a process.

    Args:
        registry: Prometheus registry.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, ("group",), buckets=buckets, registry=registry)

        self.seconds: Final = histogram(
            "taskraft_entry_seconds",
            "Time from the proposal of an entry to its result, on the leader.",
            _SECONDS,
        )
        self.commands: Final = histogram(
            "taskraft_entry_commands", "Commands in an entry.", _COMMANDS
        )
        self.bytes: Final = histogram("taskraft_entry_bytes", "Size of an entry.", _BYTES)
        self.sync: Final = histogram(
            "taskraft_log_sync_seconds", "Time of one append to the log with its fsync.", _SECONDS
        )


class EntryDistributions:
    """Histograms of the entries of one group; a ``proposer.EntryObserver``.

    Args:
        histograms: histograms of the process.
        group_id: id of the Raft group.
    """

    def __init__(self, histograms: EntryHistograms, group_id: int) -> None:
        group = str(group_id)
        # Looked up once, because looking up a series by its label takes longer than observing a
        # value.
        self._seconds = histograms.seconds.labels(group)
        self._commands = histograms.commands.labels(group)
        self._bytes = histograms.bytes.labels(group)
        self._sync = histograms.sync.labels(group)
        self._sync_us = 0

    def entry_applied(self, commands: int, entry_bytes: int, seconds: float) -> None:
        """Observe an entry that this leader proposed."""
        self._seconds.observe(seconds)
        self._commands.observe(commands)
        self._bytes.observe(entry_bytes)

    def synced(self, sync_us: int) -> None:
        """Observe one fsync; ``sync_us`` is the total time of all fsyncs so far."""
        self._sync.observe((sync_us - self._sync_us) / 1e6)
        self._sync_us = sync_us
