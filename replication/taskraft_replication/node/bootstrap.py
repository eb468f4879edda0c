"""Start a new group once the data directory ids of all founders are known and stored.

No founder votes or acknowledges entries before all founders have connected once and each has stored
the directory ids of the others. A founder with a wiped disk is therefore recognized, and cannot
found the group again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from taskraft_replication.core.types import MemberId, Roster
from taskraft_replication.driver.driver import RaftDriver
from taskraft_replication.effects import Effects
from taskraft_replication.membership.roster import members_without_directory
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.storage.group_storage import GroupStorage
from taskraft_replication.storage.membership_history import BOOTSTRAP_INDEX

_log = logging.getLogger(__name__)


class FounderDirectories:
    """The founders known to this member; complete from the start if the group already exists."""

    def __init__(self, own: MemberId, storage: GroupStorage) -> None:
        self._roster = Roster()
        self._stored_directories = storage.founder_directories
        if storage.memberships.is_at_its_beginning:
            self._roster = storage.memberships.at(BOOTSTRAP_INDEX).roster
        self.is_complete = not members_without_directory(self._roster)
        """Whether the directories of all founders are known. If the value is True after the start,
        the directory ids are stored."""
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
        """The known directory ids, from this start or an earlier start."""
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


class ClusterBootstrap:
    """Starts the member at once, or after it has connected to all founders of its new group.

    Args:
        config: the settings of the member.
        storage: the stored data of the member.
        driver: receives the founders as the first membership.
        effects: stores the directory ids.
        start: starts the member; has no effect after a failure.
        has_failed: returns whether the member has stopped because of a failure.
    """

    def __init__(
        self,
        config: NodeConfig,
        storage: GroupStorage,
        driver: RaftDriver,
        effects: Effects,
        start: Callable[[], None],
        has_failed: Callable[[], bool],
    ) -> None:
        self._group_id = config.group_id
        self._storage = storage
        self._driver = driver
        self._effects = effects
        self._start = start
        self._has_failed = has_failed
        self._founders = FounderDirectories(config.member_id, storage)
        self._is_storing = False

    @property
    def missing(self) -> tuple[MemberId, ...]:
        """The founders whose directory is not known yet."""
        return self._founders.missing

    @property
    def founders(self) -> tuple[MemberId, ...]:
        """The founders while this member waits for some of them; otherwise empty."""
        if self._founders.is_complete:
            return ()
        return tuple(info.member for info in self._founders.roster.members)

    def begin(self) -> None:
        """Start the member unless it has to wait for founders; the peers are connected."""
        roster = self._driver.membership.roster
        is_new = self._storage.memberships.is_at_its_beginning
        if not is_new or not members_without_directory(roster):
            self._start()
        elif self._founders.is_complete:
            self._store_founders()
        else:
            _log.info("group %d: waiting for founders %s to connect", self._group_id, self.missing)

    def handshake_done(self, member: MemberId, directory_id: str) -> None:
        """Record the handshake with a founder; the last handshake starts the group."""
        founders = self._founders
        if founders.is_complete:
            return
        before = founders.directories
        is_complete = founders.handshake_done(member, directory_id)
        if founders.directories != before:
            history = self._storage.memberships.all()
            note = partial(self._storage.save_memberships, history, founders.directories)
            self._effects.store(note, lambda _: None)
        if is_complete:
            self._store_founders()

    def others_seen_running(self) -> None:
        """Use the stored directory ids of the founders, because another member already runs."""
        if not self._has_failed() and self._founders.others_are_running():
            self._store_founders()

    def _store_founders(self) -> None:
        """Store the founders once, even if the last handshake arrives during ``begin``."""
        if self._is_storing:
            return
        self._is_storing = True
        history = self._storage.memberships.begin_with(self._founders.roster)
        self._effects.store(
            partial(self._storage.save_memberships, history), lambda _: self._founders_stored()
        )

    def _founders_stored(self) -> None:
        self._driver.membership_changed(self._storage.memberships.at(BOOTSTRAP_INDEX))
        self._start()
