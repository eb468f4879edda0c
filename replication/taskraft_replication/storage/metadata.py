"""Store the metadata of a group beside its log, in small files that are replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from taskraft_replication.core.types import (
    ConfState,
    HardState,
    LogIndex,
    MemberId,
    SnapshotMeta,
    Term,
)
from taskraft_replication.errors import DirectoryForeign
from taskraft_replication.membership.roster import find
from taskraft_replication.storage.checked_file import (
    JsonValue,
    list_of,
    number_of,
    object_of,
    read_checked,
    text_of,
    write_checked,
)
from taskraft_replication.storage.filesystem import FileSystem
from taskraft_replication.storage.membership_record import decode_membership, encode_membership

NO_DIRECTORIES: Final[Mapping[MemberId, str]] = MappingProxyType({})
MEMBERSHIPS_MAX: Final = 1000
"""Maximum memberships stored since the durable index. A leader refuses changes at half of this
maximum; see ``Metadata.may_change``."""


@dataclass(slots=True, frozen=True)
class Identity:
    """Cluster, group and member that a directory belongs to."""

    cluster_id: str
    member_id: MemberId
    group_id: int
    name: str = ""
    """Name of the node; empty: the members have no names, or the name is unknown."""

    def is_named(self, name: str) -> bool:
        """Return whether the node has this name; certificates ignore the case of names."""
        return self.name.lower() == name.lower()


@dataclass(slots=True, frozen=True)
class LogStart:
    """Position before the first entry of the log.

    ``generation`` counts the snapshots that replaced the whole log. Segments of an older generation
    are ignored, so one rename replaces the log.
    """

    generation: int
    index: LogIndex
    term: Term


class Metadata:
    """Identity, hard state, log start, memberships and incarnation of one group, each in a file.

    Every ``save`` method is durable when it returns. Not thread-safe.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self.directory = directory

    def _name(self, kind: str) -> str:
        return f"{self.directory}/{kind}"

    def _read(self, kind: str) -> dict[str, JsonValue]:
        return read_checked(self._fs, self._name(kind))

    def _write(self, kind: str, content: dict[str, JsonValue]) -> None:
        write_checked(self._fs, self._name(kind), content)

    def is_initialized(self) -> bool:
        """Return whether the first start was completed; the identity is written last."""
        return self._fs.exists(self._name("identity"))

    def check_identity(self, expected: Identity) -> None:
        """Check that the data belongs to ``expected``.

        Raises:
            DirectoryForeign: the data belongs to another cluster, group, member or node.
        """
        found = self.identity()
        for field in ("cluster_id", "member_id", "group_id"):
            if getattr(found, field) != getattr(expected, field):
                raise DirectoryForeign(
                    f"{self.directory} belongs to {field} {getattr(found, field)!r}, "
                    f"not to {getattr(expected, field)!r}"
                )
        if not found.is_named(expected.name):
            raise DirectoryForeign(
                f"{self.directory} belongs to node {found.name!r}, not to {expected.name!r}"
            )

    def has_joined(self) -> bool:
        """Return whether the member joined an existing group and is not a founder."""
        return self._read("identity").get("has_joined") is True

    def save_identity(self, identity: Identity, salt: int, *, has_joined: bool) -> None:
        """Write the identity, as the last step of the first start."""
        content: dict[str, JsonValue] = {
            "salt": salt,
            "has_joined": has_joined,
            "cluster_id": identity.cluster_id,
            "member_id": identity.member_id,
            "group_id": identity.group_id,
            "name": identity.name,
        }
        self._write("identity", content)

    def complete_identity(self) -> None:
        """Store the name of the node if an earlier build has stored none."""
        found = self._read("identity")
        name = self.identity().name
        if name and "name" not in found:
            self._write("identity", {**found, "name": name})

    def leave_founders(self) -> None:
        """Note that the stored membership, not the settings, has the members of the cluster."""
        self._write("identity", {**self._read("identity"), "has_joined": True})

    def identity(self) -> Identity:
        """Return cluster, group and member of the data.

        Earlier builds stored no name of the node; the stored membership then tells the name.
        """
        found = self._read("identity")
        member = MemberId(number_of(found, "member_id"))
        name = text_of(found, "name") if "name" in found else self._name_in_roster(member)
        return Identity(text_of(found, "cluster_id"), member, number_of(found, "group_id"), name)

    def _name_in_roster(self, member: MemberId) -> str:
        """Return the name of a member by the newest stored membership; empty: unknown."""
        found = list_of(self._read("membership"), "history")
        if not found:
            return ""
        _, conf_state = decode_membership(found[-1])
        info = find(conf_state.roster, member)
        return "" if info is None else info.name

    def directory_id(self, fresh: str) -> str:
        """Return the identity of this directory; the first call sets it to ``fresh``.

        The identity shows the other members whether this member still has its data: a directory
        that was wiped or replaced has another identity.
        """
        if not self._fs.exists(self._name("directory")) and not self.is_initialized():
            self._fs.make_directory(self.directory)
            self._write("directory", {"directory_id": fresh})
        return text_of(self._read("directory"), "directory_id")

    def is_removed(self) -> bool:
        """Return whether this member is recorded as removed from the group."""
        return self._fs.exists(self._name("removed"))

    def save_removed(self) -> None:
        """Record that this member was removed from the group and must not start again."""
        self._write("removed", {})

    def salt(self) -> int:
        """Return the start value for the checksums of this member's records.

        It is random, so that a client cannot send data that looks like a record of this log.
        """
        return number_of(self._read("identity"), "salt")

    def begin_life(self) -> int:
        """Increment and return the incarnation, which is the number of starts of the member."""
        incarnation = 1 + number_of(self._read("incarnation"), "number")
        self.set_lives(incarnation)
        return incarnation

    def set_lives(self, number: int) -> None:
        """Set the incarnation that the next start increments."""
        self._write("incarnation", {"number": number})

    def await_first_life(self) -> None:
        """Reset the incarnation, as a step of the first start."""
        self.set_lives(0)

    def has_lived(self) -> bool:
        """Return whether this member was ever started."""
        known = self._fs.exists(self._name("incarnation"))
        return known and number_of(self._read("incarnation"), "number") > 0

    def hard_state(self) -> HardState:
        """Return term, vote, and a lower bound of the commit index."""
        found = self._read("hard_state")
        return HardState(
            term=Term(number_of(found, "term")),
            vote=MemberId(number_of(found, "vote")),
            commit=LogIndex(number_of(found, "commit")),
        )

    def save_hard_state(self, state: HardState) -> None:
        """Write term and vote, before any message that implies them is sent."""
        content: dict[str, JsonValue] = {
            "term": state.term,
            "vote": state.vote,
            "commit": state.commit,
        }
        self._write("hard_state", content)

    def log_start(self) -> LogStart:
        """Return the position before the first entry."""
        found = self._read("log_start")
        return LogStart(
            generation=number_of(found, "generation"),
            index=LogIndex(number_of(found, "index")),
            term=Term(number_of(found, "term")),
        )

    def save_log_start(self, start: LogStart) -> None:
        """Move the start of the log; segments that are entirely before it can be deleted."""
        content: dict[str, JsonValue] = {
            "generation": start.generation,
            "index": start.index,
            "term": start.term,
        }
        self._write("log_start", content)

    def memberships(self) -> list[tuple[LogIndex, ConfState]]:
        """Return the stored memberships, each with its first index, in ascending order."""
        found = list_of(self._read("membership"), "history")
        return [decode_membership(each) for each in found]

    def founder_directories(self) -> dict[MemberId, str]:
        """Return the directory ids that a founder has collected during the bootstrap."""
        found = object_of(self._read("membership").get("met", {}))
        return {MemberId(int(member)): str(directory) for member, directory in found.items()}

    @staticmethod
    def may_change(stored: int) -> bool:
        """Return whether a member with ``stored`` memberships may propose a change.

        The other half of ``MEMBERSHIPS_MAX`` is reserved for changes that are already in the log,
        and for members that flush later.
        """
        return stored <= MEMBERSHIPS_MAX // 2

    def save_memberships(
        self,
        history: list[tuple[LogIndex, ConfState]],
        founder_directories: Mapping[MemberId, str] = NO_DIRECTORIES,
    ) -> None:
        """Write the memberships; ``founder_directories`` is for an incomplete bootstrap."""
        assert len(history) <= MEMBERSHIPS_MAX, (
            "the state machine must be flushed from time to time"
        )
        content: dict[str, JsonValue] = {
            "history": [encode_membership(*each) for each in history],
        }
        if founder_directories:
            content["met"] = {
                str(member): directory for member, directory in founder_directories.items()
            }
        self._write("membership", content)

    def installing(self) -> SnapshotMeta | None:
        """Return the snapshot of an unfinished installation, or None."""
        if not self._fs.exists(self._name("installing")):
            return None
        found = self._read("installing")
        index, conf_state = decode_membership(found["membership"])
        return SnapshotMeta(index, Term(number_of(found, "term")), conf_state)

    def save_installing(self, meta: SnapshotMeta) -> None:
        """Record that a snapshot is about to replace the state."""
        content: dict[str, JsonValue] = {
            "term": meta.term,
            "membership": encode_membership(meta.index, meta.conf_state),
        }
        self._write("installing", content)

    def clear_installing(self) -> None:
        """Record that the installation is finished or was undone."""
        self._fs.remove(self._name("installing"))
        self._fs.sync_directory(self.directory)
