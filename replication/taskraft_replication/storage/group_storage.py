"""Own all durable data of one Raft group.

Methods of the first block run on the storage worker, one at a time. Methods of the second block run
on the event loop after the worker has finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from taskraft_replication.core.types import (
    ConfState,
    Entry,
    HardState,
    LogIndex,
    MemberId,
    SnapshotMeta,
    Term,
)
from taskraft_replication.damage import Damage
from taskraft_replication.errors import (
    DirectoryOutdated,
    DirectoryRefused,
    LogDamaged,
    MemberInUse,
    MemberRemoved,
    StateLost,
)
from taskraft_replication.membership.roster import find
from taskraft_replication.storage.filesystem import FileSystem
from taskraft_replication.storage.log_scrub import Read, scrub_log, scrub_small_files
from taskraft_replication.storage.mark import Mark, MarkFile
from taskraft_replication.storage.membership_history import (
    BOOTSTRAP_INDEX,
    BOOTSTRAP_TERM,
    MembershipHistory,
    Memberships,
)
from taskraft_replication.storage.metadata import NO_DIRECTORIES, Identity, LogStart, Metadata
from taskraft_replication.storage.recent import RECENT_BYTES_MAX, RECENT_ENTRIES_MAX, RecentEntries
from taskraft_replication.storage.recovery import recover
from taskraft_replication.storage.segment import SEGMENT_BYTES
from taskraft_replication.storage.segment_log import LOG_DIRECTORY, SegmentLog
from taskraft_replication.storage.stored_log import StoredLog


@dataclass(slots=True, frozen=True)
class StorageConfig:
    """Settings of a group's storage."""

    identity: Identity
    founders: ConfState
    """Membership of a new group; empty for a member that joins an existing group."""
    salt: int
    """Random number for a first start; see ``Metadata.salt``."""
    directory_id: str = ""
    """Random id for a first start; see ``Metadata.directory_id``."""
    segment_bytes: int = SEGMENT_BYTES
    recent_bytes_max: int = RECENT_BYTES_MAX
    recent_entries_max: int = RECENT_ENTRIES_MAX


class GroupStorage:
    """Log, hard state, membership history and snapshot bookkeeping of one group."""

    def __init__(
        self,
        fs: FileSystem,
        metadata: Metadata,
        log: SegmentLog,
        view: StoredLog,
        memberships: MembershipHistory,
        incarnation: int,
    ) -> None:
        self.fs = fs
        self.metadata = metadata
        self.view = view
        self.incarnation = incarnation
        self.directory_id = metadata.directory_id("")
        self.founder_directories = metadata.founder_directories()
        """Directory ids that a founder collected in earlier starts, until the bootstrap is
        complete."""
        self._log = log
        self._commit = view.initial_state()[0].commit
        """Entries up to here are durable and known to be committed."""
        self.memberships = memberships

    @classmethod
    def open(cls, fs: FileSystem, config: StorageConfig, applied: LogIndex | None) -> GroupStorage:
        """Open the group's directory or create it.

        ``applied`` is the state machine's index; None: its state is lost and will be replaced, see
        ``StateRebuild``.

        Raises:
            DirectoryForeign: the data belongs to another cluster, group, member or node.
            MemberRemoved: this member was removed from the group.
            LogDamaged: durable data is missing or unreadable.
            StateLost: the state machine is behind the first entry of the log, or behind the oldest
                known membership.
            FormatUnknown: another version wrote the data.
        """
        is_lost, applied = applied is None, applied or LogIndex(0)
        metadata = Metadata(fs, f"raft-{config.identity.group_id}")
        metadata.directory_id(config.directory_id)
        if not metadata.is_initialized():
            _found(fs, metadata, config)
        metadata.check_identity(config.identity)
        metadata.complete_identity()
        # ``begin_life`` runs first, because it fsyncs the directory. After a crash, some file names
        # may not be durable yet. The next step deletes files only once these names are durable.
        incarnation = metadata.begin_life()
        _finish_installation(metadata, applied)
        recent = RecentEntries(config.recent_bytes_max, config.recent_entries_max)
        recovered, log = recover(fs, metadata, recent, config.segment_bytes)
        start, last = log.start, log.last_index
        if not is_lost and applied < start.index and start.index != BOOTSTRAP_INDEX:
            raise StateLost(
                f"{metadata.directory}/{LOG_DIRECTORY}: the log begins after entry {start.index}, "
                f"but the state is at entry {applied}"
            )
        if applied > last:
            raise LogDamaged(
                f"{metadata.directory}/{LOG_DIRECTORY}: the log ends at entry {last}, "
                f"but the state is at entry {applied}"
            )
        hard_state = metadata.hard_state()
        if hard_state.term < recovered.terms.term(last):
            raise LogDamaged(
                f"{metadata.directory}/hard_state: the last known term is {hard_state.term}, "
                f"but the log has entries of a later term"
            )
        memberships = MembershipHistory(metadata.memberships())
        # A stored membership proves that its entry is committed, because it is stored when the
        # entry is applied. The other members may not report the commit: members that the change
        # removed need not answer this member's vote requests.
        stored_change = memberships.last_index
        commit = max(hard_state.commit, recovered.commit, applied, start.index, stored_change)
        shown = memberships.last_index if is_lost else LogIndex(max(applied, start.index))
        _check_known_membership(memberships, shown, f"{metadata.directory}/membership")
        initial = (
            HardState(hard_state.term, hard_state.vote, LogIndex(min(commit, last))),
            memberships.at(shown),
        )
        # A member that crashed while it applied its own removal starts: the others may not know
        # that the removal is committed, and a group of two voters then needs its vote. The first
        # member that knows refuses its connection, and the removal is recorded.
        if metadata.is_removed():
            raise MemberRemoved(
                f"member {config.identity.member_id} was removed from the group; "
                f"to come back it must join again, with an empty data directory"
            )
        view = StoredLog(log, recovered.terms, recovered.changes, recent, initial)
        return cls(fs, metadata, log, view, memberships, incarnation)

    # On the storage worker.

    def store(
        self, hard_state: HardState | None, entries: Sequence[Entry], commit: LogIndex
    ) -> int:
        """Make hard state and entries durable, in this order; return the bytes of the log.

        In the other order, a crash could leave entries of a term that the hard state does not
        contain.
        """
        if hard_state is not None:
            # The commit index may cover entries that replace existing entries in this call. If only
            # the commit index became durable, the old entries would count as committed.
            before = LogIndex(entries[0].index - 1) if entries else self._log.last_index
            self._save_hard_state(hard_state, min(hard_state.commit, before))
        log_bytes = self._log.append(entries, commit) if entries else 0
        self._commit = max(self._commit, min(commit, self._log.last_index))
        return log_bytes

    def _save_hard_state(self, hard_state: HardState, commit: LogIndex) -> None:
        """Save a hard state, with the commit index limited to the durable log."""
        self.metadata.save_hard_state(HardState(hard_state.term, hard_state.vote, commit))

    def save_memberships(
        self,
        memberships: Memberships,
        founder_directories: Mapping[MemberId, str] = NO_DIRECTORIES,
    ) -> None:
        """Make the membership history durable, before the change is applied to the state.

        ``founder_directories``: directory ids that a founder has collected during the bootstrap.
        """
        self.metadata.save_memberships(memberships, founder_directories)

    def end_refused(self, refusal: DirectoryRefused) -> None:
        """Record what the next start must know of a permanent refusal by a peer.

        A refused copy of a directory leaves the incarnation as it was: if each start incremented
        it, the copy would be accepted in the end.
        """
        match refusal:
            case MemberRemoved():
                self.metadata.save_removed()
            case DirectoryOutdated() | MemberInUse(was_accepted=False):
                self.metadata.set_lives(self.incarnation - 1)
            case _:
                pass

    def trim(self, start: LogStart) -> None:
        """Delete the log before ``start``, which ``trim_start`` has returned."""
        self._log.trim(start)

    def begin_installation(self, meta: SnapshotMeta, hard_state: HardState | None = None) -> None:
        """Record that a snapshot is about to replace the state.

        A hard state is stored without its new commit index: until the switch the old log is in
        place, and may contradict the snapshot.
        """
        if hard_state is not None:
            self._save_hard_state(hard_state, self._commit)
        self.metadata.save_installing(meta)

    def finish_installation(self, meta: SnapshotMeta) -> None:
        """Replace the log and the membership by the installed snapshot."""
        self._log.reset(meta.index, meta.term)
        self._commit = meta.index
        self.metadata.save_memberships([(meta.index, meta.conf_state)])
        self.metadata.clear_installing()

    def sync_mark(self) -> None:
        """Make the mark durable; called when the worker is idle."""
        self._log.sync_mark()

    def close(self, hard_state: HardState) -> None:
        """Store the hard state and close the files.

        The stored commit index is limited to the durable log, because the core's commit index may
        cover entries that are not stored.
        """
        self._save_hard_state(hard_state, self._commit)
        self._log.close()

    def make_only_member(self, member: MemberId) -> tuple[MemberId, ...]:
        """Remove all other members and commit the whole log; return the removed members.

        Used when all other members are lost permanently. The state must have all effects of the
        log, and must be durable. Call ``close`` afterwards: the next start uses the new membership,
        also of a founder whose settings do not name the founders.
        """
        before = self.memberships.at(self.memberships.last_index).roster
        info = find(before, member)
        assert info is not None, "a removed member cannot be opened"
        roster = replace(before, members=(replace(info, directory_id=self.directory_id),))
        last = self._log.last_index
        self.metadata.save_memberships([(last, ConfState(voters=(member,), roster=roster))])
        self.metadata.leave_founders()
        self._commit = last
        return tuple(other.member for other in before.members if other.member != member)

    # On a thread of its own, while the other methods run.

    def scrub(self, read: Read) -> Iterator[int | Damage]:
        """Check all stored data of the group; see ``log_scrub``."""
        yield from scrub_small_files(self.metadata.directory, read)
        yield from scrub_log(self._log, read)

    # On the event loop.

    def beyond(self, bytes_max: int) -> LogIndex:
        """Return the last entry after which the log has at most ``bytes_max`` bytes."""
        return self._log.beyond(bytes_max)

    def trim_start(self, index: LogIndex) -> LogStart | None:
        """Return the new log start for trimming entries up to ``index``; None: nothing to trim.

        The entry after ``index`` must be committed: see ``SegmentLog.trimmed_to``.
        """
        reached = self._log.trimmed_to(index)
        current = self._log.start
        if reached <= current.index:
            return None
        return LogStart(current.generation, reached, self.view.term(reached))

    def publish_installation(self, meta: SnapshotMeta) -> None:
        """Show the log and the membership of an installed snapshot."""
        self.memberships.restart(meta.index, meta.conf_state)
        self.view.publish_reset(meta.index, meta.term)


def _check_known_membership(memberships: MembershipHistory, index: LogIndex, path: str) -> None:
    """Check that the membership at a state is known.

    Memberships before the durable state are forgotten. An older state therefore cannot apply the
    log again, although the log reaches back far enough.

    Raises:
        StateLost: the oldest known membership is later than ``index``.
    """
    if index < memberships.first_index:
        raise StateLost(
            f"{path}: the oldest membership is that of entry {memberships.first_index}, but the "
            f"state is at entry {index}"
        )


def _found(fs: FileSystem, metadata: Metadata, config: StorageConfig) -> None:
    """Create the files of a group.

    The identity is written last, so a stored identity proves that all files exist.
    """
    log_directory = f"{metadata.directory}/{LOG_DIRECTORY}"
    fs.make_directory(metadata.directory)
    fs.make_directory(log_directory)
    if fs.names(log_directory) or metadata.has_lived():
        raise LogDamaged(f"{metadata.directory} holds a log, but its identity is missing")
    start = LogStart(0, LogIndex(0), Term(0))
    if config.founders.voters:
        start = LogStart(0, BOOTSTRAP_INDEX, BOOTSTRAP_TERM)
    _create_files(fs, metadata, config, start, has_joined=not config.founders.voters)


def create_restored(fs: FileSystem, config: StorageConfig, index: LogIndex, term: Term) -> None:
    """Create the files of a new group whose state was restored at ``index``.

    The log begins after ``index``, so the indexes of the new group continue those of the state.

    Args:
        fs: the data directory.
        config: the identity of the member, and the membership of the new group.
        index: last entry whose effects the state contains.
        term: a term that is not lower than the term of that entry.
    """
    metadata = Metadata(fs, f"raft-{config.identity.group_id}")
    metadata.directory_id(config.directory_id)
    fs.make_directory(metadata.directory)
    fs.make_directory(f"{metadata.directory}/{LOG_DIRECTORY}")
    _create_files(fs, metadata, config, LogStart(0, index, term), has_joined=True)


def _create_files(
    fs: FileSystem, metadata: Metadata, config: StorageConfig, start: LogStart, *, has_joined: bool
) -> None:
    """Create the files of a group whose log begins after ``start``; the identity comes last."""
    metadata.save_log_start(start)
    metadata.save_hard_state(HardState(term=start.term, commit=start.index))
    metadata.save_memberships([(start.index, config.founders)])
    mark = Mark(start.generation, start.index, start.term, 0)
    MarkFile.create(fs, f"{metadata.directory}/mark", mark).close()
    metadata.await_first_life()
    metadata.save_identity(config.identity, config.salt, has_joined=has_joined)


def _finish_installation(metadata: Metadata, applied: LogIndex) -> None:
    """Complete or undo the installation of a snapshot that a crash interrupted.

    The state machine switches its state atomically, so ``applied`` shows whether the switch was
    done.
    """
    meta = metadata.installing()
    if meta is None:
        return
    start = metadata.log_start()
    if applied >= meta.index and start.index < meta.index:
        metadata.save_log_start(LogStart(start.generation + 1, meta.index, meta.term))
    if applied >= meta.index:
        metadata.save_memberships([(meta.index, meta.conf_state)])
    metadata.clear_installing()
