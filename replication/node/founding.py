"""Found a group: its first members learn each other's data directories before any promise.

A member that was wiped, and starts again as if for the first time, must not found the group anew
with others that were wiped or away: it has made promises that it does not know of. So a founder
takes part only when **all** others have answered it, which they do not if they know it with
another data directory, and when it has noted, durably, which directory each of them has. Whoever
ever counted a promise of a member has such a note and refuses a successor with another directory;
without the consent of that one, the successor never takes part.
"""

from __future__ import annotations

from dataclasses import replace

from replication.core.types import MemberId, Roster
from replication.membership.roster import strangers
from replication.storage.group_storage import BOOTSTRAP_INDEX, GroupStorage


class Founding:
    """What a founder knows of the others; complete at once in a group that was founded before."""

    def __init__(self, own: MemberId, storage: GroupStorage) -> None:
        self._roster = Roster()
        if storage.is_at_its_beginning:
            self._roster = storage.membership_at(BOOTSTRAP_INDEX).roster
        self.is_complete = not strangers(self._roster)
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
        return strangers(self._roster)

    def met(self, member: MemberId, directory_id: str) -> bool:
        """Note which directory a member has; what it said last counts, until all are known.

        Returns whether everybody is known by this.
        """
        if self.is_complete or not directory_id:
            return False
        infos = [
            replace(info, directory_id=directory_id) if info.member == member else info
            for info in self._roster.members
        ]
        self._roster = replace(self._roster, members=tuple(infos))
        self.is_complete = not self.missing
        return self.is_complete
