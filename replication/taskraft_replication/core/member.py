"""Hold the state of one member of a Raft group.

The modules ``election``, ``follower``, ``leader`` and others are functions on this state; each
implements one part of the protocol. Only ``RaftCore`` owns the state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.log import RaftLog
from taskraft_replication.core.pending_reads import PendingReads
from taskraft_replication.core.trace import MessageDropped, MessageDropReason, Reconfigured, Tracer
from taskraft_replication.core.tracker import ProgressTracker
from taskraft_replication.core.types import (
    NO_MEMBER,
    ConfState,
    HardState,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    RaftRole,
    ReadState,
    SoftState,
    Term,
)

_PROMISES: Final = frozenset(
    {MessageKind.APPEND_REPLY, MessageKind.VOTE_REPLY, MessageKind.PRE_VOTE_REPLY}
)


class Member:
    """The state of one member; comments in ``__init__`` group fields that must stay consistent."""

    __slots__ = (
        "after_append",
        "config",
        "election_elapsed",
        "election_timeout_ticks",
        "has_unsent_proposals",
        "heartbeat_elapsed",
        "is_asked_to_campaign",
        "leader",
        "log",
        "messages",
        "pending_change_index",
        "read_states",
        "reads",
        "rng",
        "role",
        "superseded",
        "tell",
        "term",
        "tracker",
        "transferee",
        "uncommitted_bytes",
        "vote",
    )

    def __init__(
        self, config: RaftConfig, log: RaftLog, rng: Callable[[int], int], tell: Tracer
    ) -> None:
        self.config = config
        self.log = log
        self.rng = rng
        self.tell = tell
        self.tracker = ProgressTracker(config)

        # Durable: messages that imply a term or a vote are sent only after both are durable.
        self.term = Term(0)
        self.vote = NO_MEMBER

        # Volatile: lost in a crash without harm. Times are in ticks.
        self.role = RaftRole.FOLLOWER
        self.leader = NO_MEMBER
        self.election_elapsed = 0
        """Ticks since the last message of the leader or the last vote; on a leader, since the last
        quorum check."""
        self.heartbeat_elapsed = 0
        self.election_timeout_ticks = config.election_ticks

        self.is_asked_to_campaign = False
        """The leader of this term asked this member to campaign, and it could not do so at once."""

        # Used by a leader only; zero or empty in all other roles.
        self.transferee = NO_MEMBER
        """Target of a leadership transfer in progress; during the transfer, proposals are
        dropped."""
        self.pending_change_index = LogIndex(0)
        """Highest index at which an unapplied membership change may be; no other change is appended
        before this index is applied. Set when a member becomes leader."""
        self.uncommitted_bytes = 0
        self.has_unsent_proposals = False
        """Proposals were appended since the last Ready; the next Ready sends them."""
        self.reads = PendingReads(config.reads_pending_max)

        self.superseded: ConfState | None = None
        """Configuration of the state that a pending snapshot will replace, or None without such a
        snapshot.

        The member already acts by the snapshot's configuration, while entries below the snapshot
        may still be applied."""

        # Output of the next Ready.
        self.messages: list[Message] = []
        """Messages to peers that may be sent at once."""
        self.after_append: list[Message] = []
        """Messages to peers and to this member, to send once the current term, vote and entries are
        durable."""
        self.read_states: list[ReadState] = []

    @property
    def configuration(self) -> ConfState:
        """Return the configuration that this member uses."""
        return self.tracker.configuration

    @property
    def hard_state(self) -> HardState:
        """Return the state that must be durable before messages that depend on it are sent."""
        return HardState(self.term, self.vote, self.log.commit_index)

    @property
    def soft_state(self) -> SoftState:
        """Return the current leader and this member's role."""
        return SoftState(self.leader, self.role)

    @property
    def is_promotable(self) -> bool:
        """Return whether the member may campaign: it is a voter, and installs no snapshot."""
        member_id = self.config.member_id
        return member_id in self.tracker.voters and self.log.unstable.snapshot is None

    def has_committed_in_term(self) -> bool:
        """Return whether an entry of the current term is committed.

        Before that, a leader does not know which entries are committed (Raft paper, section 8).
        """
        return self.log.matches(self.log.commit_index, self.term)

    def reset(self, term: Term) -> None:
        """Clear the state of the role; start ``term`` if it is a new term."""
        assert term >= self.term, "terms never decrease"
        if term != self.term:
            self.term = term
            self.vote = NO_MEMBER
        self.leader = NO_MEMBER
        self.election_elapsed = 0
        self.heartbeat_elapsed = 0
        ticks = self.config.election_ticks
        drawn = self.rng(ticks)
        assert 0 <= drawn < ticks
        self.election_timeout_ticks = ticks + drawn
        self.is_asked_to_campaign = False
        self.transferee = NO_MEMBER
        self.has_unsent_proposals = False
        self.uncommitted_bytes = 0
        self.reads = PendingReads(self.config.reads_pending_max)
        self.tracker.reset(self.log.last_index)

    def adopt(self, configuration: ConfState) -> None:
        """Use ``configuration`` from now on."""
        self.tracker.adopt(configuration, self.log.last_index)
        self.tell(Reconfigured(configuration))

    def send(self, message: Message) -> None:
        """Queue a message that depends on no unsynced state; it may be sent at once."""
        assert message.to != self.config.member_id
        assert message.kind not in _PROMISES, "the state that it implies must be durable first"
        self.messages.append(message)

    def send_after_append(self, message: Message) -> None:
        """Queue a message to send once all state on which it depends is durable."""
        self.after_append.append(message)

    def drop(self, message: Message, reason: MessageDropReason) -> None:
        """Drop ``message`` and report the reason to the trace."""
        self.tell(MessageDropped(message, reason))

    def is_self(self, member: MemberId) -> bool:
        """Return whether ``member`` is this member."""
        return member == self.config.member_id
