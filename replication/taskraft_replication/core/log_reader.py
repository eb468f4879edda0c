"""Define the interface through which the core reads the durable log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from taskraft_replication.core.types import ConfState, Entry, HardState, LogIndex, Snapshot, Term


class LogReader(Protocol):
    """The durable part of the log, read only.

    The core reads only entries that were reported as stored (STORAGE_APPEND_REPLY, or ``advance``).
    Entries that were handed to the append worker may already be visible; the core does not read
    them. Calls must be fast: keep recent entries in memory. The log must not be compacted during a
    call into the core.
    """

    def initial_state(self) -> tuple[HardState, ConfState]:
        """Return the durable hard state, and the membership as of ``RaftConfig.applied``.

        The membership comes from the snapshot and the applied entries, never from the unapplied
        tail of the log.
        """

    def entries(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> Sequence[Entry]:
        """Return the entries from ``lo`` up to, not including, ``hi``.

        Stops before the payloads exceed ``bytes_max``, but returns at least one entry.

        Raises:
            Compacted: ``lo`` is below ``first_index``.
            EntryUnavailable: ``hi - 1`` is above ``last_index``.
        """

    def term(self, index: LogIndex) -> Term:
        """Return the term of the entry at ``index``; also answers for ``first_index - 1``.

        Raises:
            Compacted: ``index`` is below ``first_index - 1``.
            EntryUnavailable: ``index`` is above ``last_index``.
        """

    def has_change(self, lo: LogIndex, hi: LogIndex) -> bool:
        """Return whether an entry from ``lo`` to below ``hi`` is a membership change.

        Each election asks this about all unapplied entries, so the answer must not read them.
        """

    def first_index(self) -> LogIndex:
        """Return the index of the first stored entry, one past the snapshot when there is none."""

    def last_index(self) -> LogIndex:
        """Return the index of the last stored entry, ``first_index - 1`` when there is none."""

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot, not older than ``first_index - 1``.

        Raises:
            SnapshotTemporarilyUnavailable: the snapshot is not ready; the core asks again later.
        """
