"""Continue a cluster with the data of one surviving node, after the majority was lost for good.

The node counts its whole log as committed: an entry that it has stored may have been acknowledged.
An acknowledged entry that it has not stored is lost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from taskraft_replication.core.types import HardState, LogIndex, MemberId
from taskraft_replication.errors import ReplicationError
from taskraft_replication.membership.roster import find
from taskraft_replication.node.open_storage import storage_of
from taskraft_replication.storage.data_directory import DataDirectory
from taskraft_replication.storage.failpoints import NO_FAILPOINTS
from taskraft_replication.storage.group_storage import GroupStorage
from taskraft_replication.storage.stored_member import stored_member
from taskraft_service.cluster.interrupted_restore import INTERRUPTED, is_restoring
from taskraft_service.cluster.member_identity import GROUP_ID, MemberIdentity, own_member
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


def continue_alone(config: ServerConfig) -> Recovered:
    """Make the stopped node the only member of its cluster.

    Raises:
        RecoveryRefused: the directory has no member, is in use, or is damaged; a driver is missing
            or failed for an entry that no majority has confirmed.
    """
    if not config.data_dir.exists():
        raise RecoveryRefused(f"{config.data_dir} does not exist")
    try:
        directory = DataDirectory(config.data_dir)
        try:
            return _recover(config)
        finally:
            directory.release()
    except (ReplicationError, StateDamaged, StateForeign, StateMissing, OSError) as error:
        raise RecoveryRefused(" ".join(str(error).split())) from error


def _recover(config: ServerConfig) -> Recovered:
    if is_restoring(config.data_dir):
        raise RecoveryRefused(f"{config.data_dir} has {INTERRUPTED}")
    stored = stored_member(config.data_dir, GROUP_ID)
    if stored.identity is None:
        raise RecoveryRefused(f"{config.data_dir} has no member of a cluster")
    own = own_member(config, stored.identity)
    member = MemberId(own.member_id)
    identity = MemberIdentity(own, (), directory_id=stored.directory_id)
    machine = open_machine(config, identity, NO_FAILPOINTS)
    try:
        storage = storage_of(raft_config(config, identity, NO_FAILPOINTS), machine.applied_index)
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
