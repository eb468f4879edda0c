"""Replace the lost state of a member whose log, term and vote are undamaged.

Such a member still has its acknowledged entries and its votes, so it keeps its identity. It gets a
state from a peer and then starts like a member that has restarted with this state: it applies the
rest of its log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from taskraft_replication.core.types import NO_MEMBER, Entry, LogIndex, Roster, SnapshotMeta
from taskraft_replication.storage.filesystem import FileSystem
from taskraft_replication.storage.group_storage import GroupStorage, StorageConfig
from taskraft_replication.storage.log_parts import LogKnowledge
from taskraft_replication.storage.metadata import Metadata


class StateRebuild:
    """The storage of a member without a state, which neither votes nor answers peers.

    Raises:
        LogDamaged: the log, the vote or another file is damaged too; the member must be replaced.
    """

    def __init__(self, fs: FileSystem, config: StorageConfig) -> None:
        self._storage = GroupStorage.open(fs, config, None)
        self._hard_state = self._storage.view.initial_state()[0]

    @property
    def fs(self) -> FileSystem:
        """The data directory."""
        return self._storage.fs

    @property
    def metadata(self) -> Metadata:
        """The small files of the member."""
        return self._storage.metadata

    def knowledge(self) -> LogKnowledge:
        """Return the entries of the log, which is undamaged."""
        return LogKnowledge(self._storage.view.runs(), self._hard_state.commit)

    def entries(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> Sequence[Entry]:
        """Return entries of the log from ``lo`` to below ``hi``; see ``ReadableLog``."""
        return self._storage.view.entries(lo, hi, bytes_max)

    @property
    def incarnation(self) -> int:
        """Number of starts of the member."""
        return self._storage.incarnation

    @property
    def directory_id(self) -> str:
        """Identity of the data directory."""
        return self._storage.directory_id

    @property
    def roster(self) -> Roster:
        """Return the last known members of the group."""
        memberships = self._storage.memberships
        return memberships.at(memberships.last_index).roster

    @property
    def needed_index(self) -> LogIndex:
        """Return the lowest index of a usable state: the log begins after this entry."""
        return LogIndex(self._storage.view.first_index() - 1)

    def refusal_of(self, meta: SnapshotMeta) -> str | None:
        """Return why a state cannot be used, or None.

        A state before the start of the log would lack the entries in between.
        """
        if meta.index >= self.needed_index:
            return None
        return f"the state ends at entry {meta.index}, and the log begins after {self.needed_index}"

    def install(self, meta: SnapshotMeta, switch: Callable[[], None]) -> None:
        """Make a state of committed entries the state of this member, durably.

        The log is kept if it contains the last entry of the state. Otherwise the log ends earlier,
        or its entries from there on were never committed, and the state replaces the log as an
        installed snapshot does.

        Args:
            meta: last entry of the state, and the membership there.
            switch: selects the state for restarts, atomically.
        """
        assert self.refusal_of(meta) is None
        storage, view = self._storage, self._storage.view
        if meta.index <= view.last_index() and view.term(meta.index) == meta.term:
            later = [each for each in storage.memberships.all() if each[0] > meta.index]
            storage.save_memberships([(meta.index, meta.conf_state), *later])
            switch()
            return
        if meta.term > self._hard_state.term:
            # The member never voted in this term, because the term is new to it.
            self._hard_state = replace(self._hard_state, term=meta.term, vote=NO_MEMBER)
        storage.begin_installation(meta, self._hard_state)
        switch()
        storage.finish_installation(meta)

    def close(self) -> None:
        """Close the files."""
        self._storage.close(self._hard_state)
