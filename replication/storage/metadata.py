"""Keep the small facts of a group beside its log, each in a file that is replaced as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from replication.core.types import (
    ChangeMade,
    ConfState,
    HardState,
    LogIndex,
    MemberId,
    MemberInfo,
    Roster,
    SnapshotMeta,
    Term,
)
from replication.errors import DirectoryForeign, LogDamaged
from replication.storage.checked_file import JsonValue, read_checked, write_checked
from replication.storage.filesystem import FileSystem

MEMBERSHIPS_MAX: Final = 1000
"""Memberships remembered since the durable index; more only if the state never flushes."""


@dataclass(slots=True, frozen=True)
class Identity:
    """Whose data a directory holds."""

    cluster_id: str
    member_id: MemberId
    group_id: int


@dataclass(slots=True, frozen=True)
class LogStart:
    """What lies before the first entry of the log.

    ``generation`` counts how often the log was thrown away as a whole for a snapshot; segments of
    an older generation are refuse. So one rename replaces the log.
    """

    generation: int
    index: LogIndex
    term: Term


class Metadata:
    """The small files of one group: identity, hard state, log start, memberships, lives.

    Every ``save`` is durable when it returns. Not thread-safe: one caller at a time.
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
        """Tell whether a first start was completed: the identity is written last."""
        return self._fs.exists(self._name("identity"))

    def check_identity(self, expected: Identity) -> None:
        """Make sure that the data is ours.

        Raises:
            DirectoryForeign: it is somebody else's.
        """
        found = self._read("identity")
        for field in ("cluster_id", "member_id", "group_id"):
            if found[field] != getattr(expected, field):
                raise DirectoryForeign(
                    f"{self.directory} belongs to {field} {found[field]!r}, "
                    f"not to {getattr(expected, field)!r}"
                )

    def has_joined(self) -> bool:
        """Tell whether the member joined a group that existed, and is no founder."""
        return self._read("identity").get("has_joined") is True

    def save_identity(self, identity: Identity, salt: int, *, has_joined: bool) -> None:
        """Write whose data this is: the last step of a first start."""
        content: dict[str, JsonValue] = {
            "salt": salt,
            "has_joined": has_joined,
            "cluster_id": identity.cluster_id,
            "member_id": identity.member_id,
            "group_id": identity.group_id,
        }
        self._write("identity", content)

    def identity(self) -> Identity:
        """Return whose data this is."""
        found = self._read("identity")
        return Identity(
            cluster_id=_text(found, "cluster_id"),
            member_id=MemberId(_number(found, "member_id")),
            group_id=_number(found, "group_id"),
        )

    def directory_id(self, fresh: str) -> str:
        """Return the identity of this directory; ``fresh`` becomes it at the very first call.

        It tells others whether a member still has what it promised: a directory that was wiped, or
        replaced by another, has another one.
        """
        if not self._fs.exists(self._name("directory")) and not self.is_initialized():
            self._fs.make_directory(self.directory)
            self._write("directory", {"directory_id": fresh})
        return _text(self._read("directory"), "directory_id")

    def is_removed(self) -> bool:
        """Tell whether the others have removed this member, as far as it was told."""
        return self._fs.exists(self._name("removed"))

    def save_removed(self) -> None:
        """Note that the others have removed this member: it must not start again."""
        self._write("removed", {})

    def salt(self) -> int:
        """Return the number that the checksums of this member's records start from.

        Drawn at random, so that nobody can send data that looks like a record of our log.
        """
        return _number(self._read("identity"), "salt")

    def begin_life(self) -> int:
        """Count this start; return its number, by which peers tell our lives apart."""
        incarnation = 1 + _number(self._read("incarnation"), "number")
        self._write("incarnation", {"number": incarnation})
        return incarnation

    def await_first_life(self) -> None:
        """Make it the first life that begins next: a step of a first start."""
        self._write("incarnation", {"number": 0})

    def has_lived(self) -> bool:
        """Tell whether a life began here ever."""
        known = self._fs.exists(self._name("incarnation"))
        return known and _number(self._read("incarnation"), "number") > 0

    def hard_state(self) -> HardState:
        """Return term, vote and a lower bound of the commit index."""
        found = self._read("hard_state")
        return HardState(
            term=Term(_number(found, "term")),
            vote=MemberId(_number(found, "vote")),
            commit=LogIndex(_number(found, "commit")),
        )

    def save_hard_state(self, state: HardState) -> None:
        """Write term and vote together, before anything that implies them may leave."""
        content: dict[str, JsonValue] = {
            "term": state.term,
            "vote": state.vote,
            "commit": state.commit,
        }
        self._write("hard_state", content)

    def log_start(self) -> LogStart:
        """Return where the log begins."""
        found = self._read("log_start")
        return LogStart(
            generation=_number(found, "generation"),
            index=LogIndex(_number(found, "index")),
            term=Term(_number(found, "term")),
        )

    def save_log_start(self, start: LogStart) -> None:
        """Move the beginning of the log; segments wholly before it are refuse from now on."""
        content: dict[str, JsonValue] = {
            "generation": start.generation,
            "index": start.index,
            "term": start.term,
        }
        self._write("log_start", content)

    def memberships(self) -> list[tuple[LogIndex, ConfState]]:
        """Return the known memberships, each with the index from which it holds; ascending."""
        found = self._read("membership")["history"]
        assert isinstance(found, list)
        return [_decode_membership(each) for each in found]

    def save_memberships(self, history: list[tuple[LogIndex, ConfState]]) -> None:
        """Write the known memberships."""
        assert len(history) <= MEMBERSHIPS_MAX, "the state machine never became durable"
        self._write("membership", {"history": [_encode_membership(*each) for each in history]})

    def installing(self) -> SnapshotMeta | None:
        """Return the snapshot whose installation was begun and not finished, if there is one."""
        if not self._fs.exists(self._name("installing")):
            return None
        found = self._read("installing")
        index, conf_state = _decode_membership(found["membership"])
        return SnapshotMeta(index, Term(_number(found, "term")), conf_state)

    def save_installing(self, meta: SnapshotMeta) -> None:
        """Note that the state machine is about to be replaced."""
        content: dict[str, JsonValue] = {
            "term": meta.term,
            "membership": _encode_membership(meta.index, meta.conf_state),
        }
        self._write("installing", content)

    def clear_installing(self) -> None:
        """Note that the installation is finished, or was undone."""
        self._fs.remove(self._name("installing"))
        self._fs.sync_directory(self.directory)


def _number(content: dict[str, JsonValue], field: str) -> int:
    found = content.get(field)
    if not isinstance(found, int):
        raise LogDamaged(f"field {field} is missing or no number")
    return found


def _text(content: dict[str, JsonValue], field: str) -> str:
    found = content.get(field)
    if not isinstance(found, str):
        raise LogDamaged(f"field {field} is missing or no text")
    return found


def _members(content: dict[str, JsonValue], field: str) -> tuple[MemberId, ...]:
    found = content[field]
    assert isinstance(found, list)
    return tuple(MemberId(each) for each in found if isinstance(each, int))


def _encode_membership(index: LogIndex, conf_state: ConfState) -> JsonValue:
    return {
        "index": index,
        "voters": list(conf_state.voters),
        "learners": list(conf_state.learners),
        "voters_outgoing": list(conf_state.voters_outgoing),
        "learners_next": list(conf_state.learners_next),
        "auto_leave": conf_state.auto_leave,
        "last_member": conf_state.roster.last_member,
        "roster": [_encode_info(info) for info in conf_state.roster.members],
        "changes_made": [
            {"request": made.request, "member": made.member}
            for made in conf_state.roster.changes_made
        ],
    }


def _encode_info(info: MemberInfo) -> JsonValue:
    return {
        "member": info.member,
        "name": info.name,
        "peer_address": info.peer_address,
        "client_address": info.client_address,
        "directory_id": info.directory_id,
    }


def _decode_roster(content: dict[str, JsonValue]) -> Roster:
    infos, made = content["roster"], content["changes_made"]
    assert isinstance(infos, list)
    assert isinstance(made, list)
    return Roster(
        tuple(_decode_info(info) for info in infos),
        MemberId(_number(content, "last_member")),
        tuple(_decode_change_made(each) for each in made),
    )


def _decode_change_made(content: JsonValue) -> ChangeMade:
    assert isinstance(content, dict)
    return ChangeMade(_text(content, "request"), MemberId(_number(content, "member")))


def _decode_info(content: JsonValue) -> MemberInfo:
    assert isinstance(content, dict)
    return MemberInfo(
        member=MemberId(_number(content, "member")),
        name=_text(content, "name"),
        peer_address=_text(content, "peer_address"),
        client_address=_text(content, "client_address"),
        directory_id=_text(content, "directory_id"),
    )


def _decode_membership(content: JsonValue) -> tuple[LogIndex, ConfState]:
    assert isinstance(content, dict)
    conf_state = ConfState(
        voters=_members(content, "voters"),
        learners=_members(content, "learners"),
        voters_outgoing=_members(content, "voters_outgoing"),
        learners_next=_members(content, "learners_next"),
        auto_leave=content["auto_leave"] is True,
        roster=_decode_roster(content),
    )
    return LogIndex(_number(content, "index")), conf_state
