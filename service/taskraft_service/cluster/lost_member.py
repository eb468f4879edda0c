"""Record that this node has lost its log or its vote, and set the damaged data aside.

The record exists from the discovery of the loss until the new member has taken the place of the
old one. While the record exists, the node never opens the old data. The old data stays in place
until the cluster has accepted the new member.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from taskraft_replication.errors import ReplicationError
from taskraft_replication.storage.checked_file import (
    number_of,
    read_checked,
    text_of,
    write_checked,
)
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.metadata import Metadata
from taskraft_replication.storage.stored_member import member_in
from taskraft_service.storage.directory import STATE_DIRECTORY, set_aside

log: Final = structlog.get_logger(__name__)

RECORD: Final = "replacement"


@dataclass(slots=True, frozen=True)
class LostMember:
    """A member whose data is lost, and the data directory of the new member."""

    member_id: int
    """Id that the node has lost; 0: unknown."""
    directory_id: str
    """Identity of the new data directory."""
    reason: str
    """Description of the lost data, in one line."""
    name: str
    """Name of the node that has found the loss; empty: an earlier build wrote the record."""


class LostMemberRecord:
    """The record of a lost member in a data directory, which must be locked; blocks.

    Args:
        data_dir: the data directory.
        group_id: id of the Raft group.
    """

    def __init__(self, data_dir: Path, group_id: int) -> None:
        self._data_dir = data_dir
        self._group_id = group_id
        self._directory = f"raft-{group_id}"
        self._fs = DiskFileSystem(data_dir)

    def read(self) -> LostMember | None:
        """Return the lost member, or None.

        Raises:
            LogDamaged: the record is damaged; ``begin`` writes another one.
        """
        if not self._fs.exists(RECORD):
            return None
        found = read_checked(self._fs, RECORD)
        return LostMember(
            number_of(found, "member_id"),
            text_of(found, "directory_id"),
            text_of(found, "reason"),
            text_of(found, "name") if "name" in found else "",
        )

    def begin(self, reason: str, name: str, *, is_founding: bool = False) -> None:
        """Record durably that the data of the node ``name`` is lost.

        Each call chooses another new data directory.
        The id in the directory of a founder is that of the settings. The member of this name may
        have another id by now, so the cluster finds the member by its name.
        """
        try:
            identity = Metadata(self._fs, self._directory).identity()
            member_id = 0 if is_founding else int(identity.member_id)
        except ReplicationError:
            member_id = 0  # the identity is damaged too; the cluster finds the member by its name
        write_checked(
            self._fs,
            RECORD,
            {
                "member_id": member_id,
                "directory_id": secrets.token_hex(8),
                "reason": " ".join(reason.split()),
                "name": name,
            },
        )

    def is_set_aside(self, lost: LostMember) -> bool:
        """Return whether the directory of the new member is in place."""
        try:
            place = Metadata(self._fs, self._directory)
            return self._fs.exists(f"{self._directory}/directory") and (
                place.directory_id("") == lost.directory_id
            )
        except ReplicationError:
            return False

    def set_aside(self, lost: LostMember) -> None:
        """Move the damaged data away, and create the directory of the new member.

        The new directory id is written last, so an interrupted call is repeated.
        """
        for name in (STATE_DIRECTORY, self._directory):
            path = self._data_dir / name
            if path.exists():
                kept = set_aside(path)
                log.warning(
                    "data of the lost member set aside",
                    directory=name,
                    kept=str(kept),
                )
        member_in(self._fs, self._group_id, lost.directory_id)

    def end(self) -> None:
        """Delete the record, if there is one: no member is replaced any more."""
        if self._fs.exists(RECORD):
            self._fs.remove(RECORD)
            self._fs.sync_directory("")
