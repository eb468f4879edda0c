"""Continue a cluster with the data of one surviving node, after the majority was lost for good.

The node counts its whole log as committed: an entry that it has stored may have been acknowledged.
An acknowledged entry that it has not stored is lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from taskraft_replication.core.types import HardState, LogIndex, MemberId
from taskraft_replication.errors import LogDamaged, ReplicationError
from taskraft_replication.membership.roster import find
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.node.open_storage import storage_of
from taskraft_replication.storage.data_directory import DataDirectory
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.group_storage import GroupStorage
from taskraft_replication.storage.log_prefix import LogPrefix
from taskraft_replication.storage.membership_history import BOOTSTRAP_INDEX, MembershipHistory
from taskraft_replication.storage.metadata import Metadata
from taskraft_replication.storage.stored_member import StoredMember, stored_member
from taskraft_service.backup.remaining_state import RemainingState, best_state
from taskraft_service.cluster.interrupted_restore import INTERRUPTED, is_restoring
from taskraft_service.cluster.lost_member import LostMemberRecord
from taskraft_service.cluster.member_identity import GROUP_ID, MemberIdentity, own_member
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.process.startup import open_machine, raft_config
from taskraft_service.storage.directory import StateForeign, StateMissing
from taskraft_service.storage.rocks import StateDamaged

READ_BYTES: Final = 16 << 20
"""Maximum size of a batch of applied entries, in bytes; one entry may be larger."""
CHOKED_PAUSE_SECONDS: Final = 0.05


class RecoveryRefused(Exception):
    """The node cannot continue alone; the text says why, in one line."""


@dataclass(slots=True, frozen=True)
class Recovered:
    """The result of a recovery: the last entry of the log, and the names of the removed members."""

    index: int
    removed: Sequence[str]


@dataclass(slots=True, frozen=True)
class Recovery:
    """What a stopped node can continue with; nothing was changed yet.

    Used while the data directory is locked, see ``recovery_of``.
    """

    config: ServerConfig
    stored: StoredMember
    own: PeerAddress
    state: RemainingState
    log: LogPrefix
    """The entries of the log that follow the state."""

    @property
    def losses(self) -> Sequence[str]:
        """What is given up, in one line each; empty: nothing that this node has stored."""
        lost = [] if self.log.lost is None else [f"log: {self.log.lost}"]
        return [*lost, *(f"state: {text}" for text in self.state.unreadable)]

    def run(self) -> Recovered:
        """Make the node the only member of its cluster.

        Raises:
            RecoveryRefused: see ``recovery_of``; a driver is missing or failed for an entry that no
                majority has confirmed; an entry needs a damaged part of the state.
        """
        with _refusals():
            self.state.put_in_place()
            recovered = self._continue_alone()
            LostMemberRecord(self.config.data_dir, GROUP_ID).end()
            return recovered

    def _continue_alone(self) -> Recovered:
        config, member = self.config, MemberId(self.own.member_id)
        identity = MemberIdentity(self.own, (), directory_id=self.stored.directory_id)
        machine = open_machine(config, identity)
        try:
            settings = raft_config(config, identity)
            storage = self._open_storage(settings, machine.applied_index)
            _apply_log(machine, storage)
        except BaseException:
            machine.abandon()
            raise
        machine.close()
        last = storage.view.last_index()
        before = storage.memberships.at(storage.memberships.last_index).roster
        removed = storage.make_only_member(member)
        hard_state, _ = storage.view.initial_state()
        storage.close(HardState(hard_state.term, hard_state.vote, last))
        infos = [find(before, other) for other in removed]
        return Recovered(last, [info.name for info in infos if info is not None])

    def _open_storage(self, settings: NodeConfig, applied: LogIndex) -> GroupStorage:
        """Open the log, or what is left of a damaged one."""
        try:
            return storage_of(settings, applied)
        except LogDamaged:
            self.log.keep(settings.segment_bytes)
            return storage_of(settings, applied)


@contextmanager
def recovery_of(config: ServerConfig) -> Iterator[Recovery]:
    """Lock the data of a stopped node, and read what is left; unlock the data at the end.

    Raises:
        RecoveryRefused: the directory has no member, is in use, or no state of it can be opened.
    """
    if not config.data_dir.exists():
        raise RecoveryRefused(f"{config.data_dir} does not exist")
    with ExitStack() as opened:
        with _refusals():
            directory = DataDirectory(config.data_dir)
            opened.callback(directory.release)
            recovery = _survey(config)
        yield recovery


@contextmanager
def _refusals() -> Iterator[None]:
    """Convert the errors of the data to ``RecoveryRefused``."""
    try:
        yield
    except (ReplicationError, StateDamaged, StateForeign, StateMissing, OSError) as error:
        raise RecoveryRefused(" ".join(str(error).split())) from error


def _survey(config: ServerConfig) -> Recovery:
    if is_restoring(config.data_dir):
        raise RecoveryRefused(f"{config.data_dir} has {INTERRUPTED}")
    stored = stored_member(config.data_dir, GROUP_ID)
    if stored.identity is None:
        raise RecoveryRefused(f"{config.data_dir} has no member of a cluster")
    own = own_member(config, stored.identity)
    fs = DiskFileSystem(config.data_dir)
    needed = _needed_index(Metadata(fs, f"raft-{GROUP_ID}"))
    state = best_state(config.data_dir, config.cluster_id, own.member_id, needed)
    if state is None:
        raise RecoveryRefused(
            f"{config.data_dir} has no state that can be opened and continued: its log and its"
            f" memberships begin after entry {needed}; restore a backup, see docs/disaster.md"
        )
    return Recovery(config, stored, own, state, LogPrefix(fs, GROUP_ID, state.index))


def _needed_index(metadata: Metadata) -> LogIndex:
    """Return the lowest index of a state that can be continued; 0: the log has all entries."""
    start = metadata.log_start().index
    oldest = MembershipHistory(metadata.memberships()).first_index
    needed = max(start, oldest)
    return LogIndex(0) if needed == BOOTSTRAP_INDEX else needed


def _apply_log(machine: QueueMachine, storage: GroupStorage) -> None:
    """Apply the whole log, and make its effects durable without it."""
    last = storage.view.last_index()
    while machine.applied_index < last:
        begin = LogIndex(machine.applied_index + 1)
        entries = storage.view.entries(begin, LogIndex(last + 1), READ_BYTES)
        while machine.is_choked:
            time.sleep(CHOKED_PAUSE_SECONDS)
        machine.apply(entries)
        if machine.waits_for_members():
            raise RecoveryRefused(
                f"a tube driver failed at entry {machine.applied_index}, and no majority has "
                f"confirmed the failure; install the driver of the other nodes"
            )
    while machine.is_choked:
        time.sleep(CHOKED_PAUSE_SECONDS)
    machine.collect()
    machine.flush_durably()
    assert machine.durable_index == last, "the next start reads the membership at the last entry"
