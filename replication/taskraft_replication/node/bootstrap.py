"""Collect the data directory ids of all founders before a new group starts.

No founder votes or acknowledges entries before all founders have connected once and each has stored
the directory ids of the others. A founder whose disk was wiped is therefore recognized, and cannot
found the group a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from taskraft_replication.core.types import MemberId, Roster
from taskraft_replication.membership.roster import members_without_directory
from taskraft_replication.storage.group_storage import BOOTSTRAP_INDEX, GroupStorage


class ClusterBootstrap:
    """The founders known to this member; complete at once if the group was founded before."""

    def __init__(self, own: MemberId, storage: GroupStorage) -> None:
        self._roster = Roster()
        self._stored_directories = storage.founder_directories
        if storage.is_at_its_beginning:
            self._roster = storage.membership_at(BOOTSTRAP_INDEX).roster
        self.is_complete = not members_without_directory(self._roster)
        """Whether the directories of all founders are known. If this is True after the start, they
        are stored."""
        if not self.is_complete:
            self.handshake_done(own, storage.directory_id)

    @property
    def roster(self) -> Roster:
        """The founders, with the directory ids that are known."""
        return self._roster

    @property
    def missing(self) -> tuple[MemberId, ...]:
        """The founders whose directory is not known yet."""
        return members_without_directory(self._roster)

    @property
    def directories(self) -> Mapping[MemberId, str]:
        """The known directory ids, from this start or an earlier one."""
        return self._stored_directories | {
            info.member: info.directory_id for info in self._roster.members if info.directory_id
        }

    def handshake_done(self, member: MemberId, directory_id: str) -> bool:
        """Record the directory id of a member; a later report replaces it until all are known.

        Returns whether this completes the bootstrap.
        """
        if self.is_complete or not directory_id:
            return False
        self._learn({member: directory_id})
        return self.is_complete

    def others_are_running(self) -> bool:
        """Use the directory ids of earlier starts, because another member already runs.

        Returns whether this completes the bootstrap.
        """
        known = self.directories
        if self.is_complete or any(info.member not in known for info in self._roster.members):
            return False
        self._learn(known)
        return self.is_complete

    def _learn(self, directories: Mapping[MemberId, str]) -> None:
        infos = [
            replace(info, directory_id=directories.get(info.member, info.directory_id))
            for info in self._roster.members
        ]
        self._roster = replace(self._roster, members=tuple(infos))
        self.is_complete = not self.missing
