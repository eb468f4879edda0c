"""Define the input and output values of the Raft core.

The messages follow the message set of etcd-io/raft, whose public traces are the conformance suite
of this core. All values are immutable by convention (``value``): mypy rejects assignments to their
fields, and nothing is checked at runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NewType, TypeVar, dataclass_transform

Term = NewType("Term", int)
LogIndex = NewType("LogIndex", int)
MemberId = NewType("MemberId", int)

NO_MEMBER: Final = MemberId(0)
"""No member: an unknown leader, a vote not given."""

APPEND_WORKER: Final = MemberId(-1)
"""Receiver of storage work: entries, hard state, snapshots. Never a member."""

APPLY_WORKER: Final = MemberId(-2)
"""Receiver of committed entries. Never a member."""

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make ``cls`` an immutable value, checked by mypy but not at runtime.

    ``frozen=True`` would set every field with ``object.__setattr__``, which takes four times as
    long per object.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


class EntryKind(Enum):
    """Kind of an entry: data of the state machine, or a membership change."""

    __hash__ = object.__hash__  # hashing by identity takes a quarter of the time of Enum's hash

    NORMAL = 0
    CONF_CHANGE = 1
    """A membership change of one member, in the old (v1) form."""
    CONF_CHANGE_V2 = 2
    """A membership change of any number of members, possibly through a joint configuration."""


@value
class Entry:
    """One slot of the log.

    ``data`` is opaque to the core; empty data is a leader's no-op.
    """

    term: Term
    index: LogIndex
    data: bytes = b""
    kind: EntryKind = EntryKind.NORMAL


@value
class HardState:
    """Term, vote and commit index; made durable before any message that depends on them is sent."""

    term: Term = Term(0)
    vote: MemberId = NO_MEMBER
    commit: LogIndex = LogIndex(0)


@value
class MemberInfo:
    """Name and addresses of a member, for operators and for the transport."""

    member: MemberId
    name: str = ""
    peer_address: str = ""
    client_address: str = ""
    directory_id: str = ""
    """Identity of the member's data directory; empty until the member has joined."""
    replaces: MemberId = MemberId(0)
    """The voter that this learner replaces once it has caught up; 0: none."""
    added_itself: bool = False
    """Whether the node has added itself, and no operator has admitted the node yet."""


@value
class ChangeMade:
    """A membership change that was requested with a request id, kept to recognize a retry."""

    request: str
    """Request id as the caller sent it; opaque to the core."""
    member: MemberId
    """The member that was changed."""


@value
class Roster:
    """The members of a group with names and addresses, ordered by member id."""

    members: tuple[MemberInfo, ...] = ()
    last_member: MemberId = NO_MEMBER
    """Highest member id ever assigned. Member ids are never reused."""
    changes_made: tuple[ChangeMade, ...] = ()
    """The most recent requested changes, oldest first."""
    removed_names: tuple[str, ...] = ()
    """Names of nodes that were removed and not added again, the latest last."""


@value
class ConfState:
    """The membership at one index: the voters, the learners, and the outgoing half if it is joint.

    ``voters_outgoing`` is non-empty only in a joint configuration. ``learners_next`` are voters of
    the outgoing half that become learners when the joint configuration is left. ``roster`` belongs
    to the driver, which stores and sends it with the membership; the core never reads it.
    """

    voters: tuple[MemberId, ...] = ()
    learners: tuple[MemberId, ...] = ()
    voters_outgoing: tuple[MemberId, ...] = ()
    learners_next: tuple[MemberId, ...] = ()
    auto_leave: bool = False
    roster: Roster = Roster()


@value
class SnapshotMeta:
    """Last index and term that a snapshot covers, and the membership at that index."""

    index: LogIndex
    term: Term
    conf_state: ConfState


@value
class Snapshot:
    """A snapshot as the core sees it.

    ``data`` is a reference that only the driver understands. The driver streams the content
    separately from the log. In tests, ``data`` is the content itself.
    """

    meta: SnapshotMeta
    data: bytes = b""


class MessageKind(Enum):
    """Every message between members, and between a member and its two storage workers."""

    __hash__ = object.__hash__  # faster lookups in tables; see EntryKind

    HUP = "hup"
    """Local: campaign now."""
    BEAT = "beat"
    """Local: the leader's heartbeat is due."""
    PROPOSE = "propose"
    APPEND = "append"
    APPEND_REPLY = "append_reply"
    VOTE = "vote"
    VOTE_REPLY = "vote_reply"
    PRE_VOTE = "pre_vote"
    PRE_VOTE_REPLY = "pre_vote_reply"
    SNAPSHOT = "snapshot"
    HEARTBEAT = "heartbeat"
    HEARTBEAT_REPLY = "heartbeat_reply"
    UNREACHABLE = "unreachable"
    SNAPSHOT_STATUS = "snapshot_status"
    CHECK_QUORUM = "check_quorum"
    TRANSFER_LEADER = "transfer_leader"
    TIMEOUT_NOW = "timeout_now"
    READ_INDEX = "read_index"
    READ_INDEX_REPLY = "read_index_reply"
    FORGET_LEADER = "forget_leader"
    STORAGE_APPEND = "storage_append"
    """To APPEND_WORKER: store ``entries``, ``hard_state`` and ``snapshot``; sync; then deliver
    ``replies``."""
    STORAGE_APPEND_REPLY = "storage_append_reply"
    STORAGE_APPLY = "storage_apply"
    """To APPLY_WORKER: apply ``entries``, then deliver ``replies``.

    The worker skips entries at or below the index of a snapshot that was installed in the meantime,
    including membership changes. It still delivers the replies.
    """
    STORAGE_APPLY_REPLY = "storage_apply_reply"


@value
class Message:
    """One message.

    Unused fields keep their defaults; ``index``/``log_term`` name a log position.

    ``reject_hint`` with ``log_term`` is the last position at which the follower's log may match the
    leader's. ``hard_state`` and ``replies`` are set only in messages to the storage workers.
    ``context`` is the id of a read request, the reason of a campaign (leadership transfer), or the
    position of the last committed entry (refused vote).
    """

    kind: MessageKind
    to: MemberId = NO_MEMBER
    sender: MemberId = NO_MEMBER
    term: Term = Term(0)
    log_term: Term = Term(0)
    index: LogIndex = LogIndex(0)
    entries: tuple[Entry, ...] = ()
    commit: LogIndex = LogIndex(0)
    vote: MemberId = NO_MEMBER
    snapshot: Snapshot | None = None
    reject: bool = False
    reject_hint: LogIndex = LogIndex(0)
    context: bytes = b""
    hard_state: HardState | None = None
    replies: tuple[Message, ...] = ()


class RaftRole(Enum):
    """Role of a member in its term."""

    __hash__ = object.__hash__  # see MessageKind

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@value
class SoftState:
    """Known leader and role of a member; not stored, because a restart resets both."""

    leader: MemberId
    role: RaftRole


@value
class ReadState:
    """Answer to ``read_index``: reads are linearizable once ``index`` is applied."""

    index: LogIndex
    context: bytes


@value
class Ready:
    """Work for the driver.

    In asynchronous mode, which the product uses, all work is in ``messages``. Messages to
    APPEND_WORKER carry the data to sync and the replies to deliver after the sync. Messages to
    APPLY_WORKER carry the committed entries. Messages to peers may leave at once: a message that
    depends on unsynced data is among the replies.

    In synchronous mode the other fields are the work: store ``hard_state``, ``snapshot`` and
    ``entries`` (synced if ``must_sync``, and always with a snapshot), apply ``committed``, send
    ``messages``, call ``advance``. In asynchronous mode these fields repeat the content of the
    messages, except for ``soft_state`` and ``read_states``, which no message carries.
    """

    soft_state: SoftState | None = None
    hard_state: HardState | None = None
    read_states: Sequence[ReadState] = ()
    entries: Sequence[Entry] = ()
    snapshot: Snapshot | None = None
    committed: Sequence[Entry] = ()
    messages: Sequence[Message] = ()
    must_sync: bool = False
