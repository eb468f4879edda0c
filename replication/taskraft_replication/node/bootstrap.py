"""Found a group: its first members learn each other's data directories before any promise.

A member that was wiped, and starts again as if for the first time, must not found the group anew
with others that were wiped or away: it has made promises that it does not know of. So a founder
takes part only when **all** others have answered it, which they do not if they know it with
another data directory, and when it has noted, durably, which directory each of them has. Whoever
ever counted a promise of a member has such a note and refuses a successor with another directory;
without the consent of that one, the successor never takes part.

A consent holds as long as the directory does, so it is noted at once and outlives a restart: a
founder that was killed need not meet again who is lost by then. But it takes part by such notes
only when another one does already. Until then nothing is lost by waiting, and somebody who was
wiped meanwhile can still be met with the directory that it has now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from taskraft_replication.core.types import MemberId, Roster
from taskraft_replication.membership.roster import members_without_directory
from taskraft_replication.storage.group_storage import BOOTSTRAP_INDEX, GroupStorage


class ClusterBootstrap:
    """What a founder knows of the others; complete at once in a group that was founded before."""

    def __init__(self, own: MemberId, storage: GroupStorage) -> None:
        self._roster = Roster()
        self._met_before = storage.met
        if storage.is_at_its_beginning:
            self._roster = storage.membership_at(BOOTSTRAP_INDEX).roster
        self.is_complete = not members_without_directory(self._roster)
        """Whether everybody's directory is known, durably if this is so from the beginning."""
        if not self.is_complete:
            self.met(own, storage.directory_id)

    @property
    def roster(self) -> Roster:
        """Who founds the group, as far as they are known."""
        return self._roster

    @property
    def missing(self) -> tuple[MemberId, ...]:
        """Who has not been met yet."""
        return members_without_directory(self._roster)

    @property
    def directories(self) -> Mapping[MemberId, str]:
        """Who was met, in this life or an earlier one, with the directory that it had."""
        return self._met_before | {
            info.member: info.directory_id for info in self._roster.members if info.directory_id
        }

    def met(self, member: MemberId, directory_id: str) -> bool:
        """Note which directory a member has; what it said last counts, until all are known.

        Returns whether everybody is known by this.
        """
        if self.is_complete or not directory_id:
            return False
        self._learn({member: directory_id})
        return self.is_complete

    def others_are_running(self) -> bool:
        """Learn that another member takes part: then those count too who were met before.

        Returns whether everybody is known by this.
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
