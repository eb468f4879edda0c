"""Decide whether a node that has lost its log or its vote becomes a new member."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from taskraft_replication.core.types import ConfState, MemberId
from taskraft_replication.errors import DirectoryUnknown, LogDamaged, MemberRemoved
from taskraft_replication.membership.roster import find
from taskraft_replication.storage.data_directory import DataDirectory
from taskraft_service.cluster.lost_member import LostMemberRecord
from taskraft_service.cluster.member_identity import (
    GROUP_ID,
    DataMissing,
    NameKnown,
    replacement_targets,
)
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.process.repair_journal import RepairJournal, RepairKind
from taskraft_service.storage.directory import POINTER, STATE_DIRECTORY

log: Final = structlog.get_logger(__name__)


def is_replaced_after(config: ServerConfig, error: Exception, *, is_founding: bool = False) -> bool:
    """Return whether a node becomes a new member after this error; see ``replace_member``.

    Args:
        config: the settings of the node.
        error: why the node could not start, or has stopped.
        is_founding: the node waited for the other founders, so it had no data.
    """
    has_certificates = config.peer_tls_cert is not None
    if config.replace_member == "off":
        return False
    if not replacement_targets(config, has_certificates=has_certificates):
        return False
    if isinstance(error, LogDamaged | DataMissing):
        return True
    if isinstance(error, MemberRemoved) and not is_founding:
        return False  # an operator has removed the member
    if not isinstance(error, DirectoryUnknown | MemberRemoved | NameKnown):
        return False
    has_data = not is_founding and (config.data_dir / STATE_DIRECTORY / POINTER).exists()
    return has_data or config.replace_member == "always"


def begin_replacement(config: ServerConfig, reason: str, *, is_founding: bool = False) -> None:
    """Record that the data of this node is lost; the next opening asks for a new member; blocks.

    ``is_founding``: the node waited for the other founders, so it had no data.

    Raises:
        DirectoryRefused: another process has locked the data directory.
    """
    directory = DataDirectory(config.data_dir)
    try:
        record = LostMemberRecord(config.data_dir, GROUP_ID)
        record.begin(reason, config.node_name, is_founding=is_founding)
    finally:
        directory.release()
    log.error("the data of this member is lost; the node becomes a new member", reason=reason)


class ReplacementWatch:
    """Watches until the new member of this node has taken the place of the lost one.

    Args:
        record: the record of the lost member; deleted at the end.
        membership: returns the membership as this node knows it.
        member_id: the new member.
        journal: counts the replacement.
        changed: waits until the membership may have changed.
    """

    def __init__(
        self,
        record: LostMemberRecord,
        membership: Callable[[], ConfState],
        member_id: MemberId,
        journal: RepairJournal,
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._changed = changed
        self._record = record
        self._membership = membership
        self._member_id = member_id
        self._journal = journal
        self.problem = ""
        """Reason for which the node is not ready; empty: the node replaces no member."""

    async def run(self) -> None:
        """Wait for the end of a replacement, if there is one; then delete its record."""
        lost = await asyncio.to_thread(self._record.read)
        if lost is None:
            return
        old = lost.member_id or "unknown"
        self.problem = f"replacing: member {self._member_id} replaces member {old}: {lost.reason}"
        while not self._is_complete():
            await self._changed()
        await asyncio.to_thread(self._record.end)
        self._journal.note(RepairKind.MEMBER)
        self.problem = ""
        log.warning("the member is replaced", old=old, new=self._member_id)

    def _is_complete(self) -> bool:
        membership = self._membership()
        own = find(membership.roster, self._member_id)
        return own is not None and not own.replaces and not membership.voters_outgoing
