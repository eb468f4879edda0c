"""Hold the state of one member of a Raft group.

The modules ``election``, ``follower``, ``leader`` and their like are functions on this state; each
tells one part of the protocol. ``RaftCore`` is the only one who owns it.
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
    """The state of one member; see the groups of fields for what must stay consistent."""

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

        # Durable: nothing that implies a term or a vote leaves before they are synced.
        self.term = Term(0)
        self.vote = NO_MEMBER

        # Volatile: lost in a crash without harm. Times are in ticks.
        self.role = RaftRole.FOLLOWER
        self.leader = NO_MEMBER
        self.election_elapsed = 0
        """Since the last sign of a leader, or a vote; on a leader, since the last quorum check."""
        self.heartbeat_elapsed = 0
        self.election_timeout_ticks = config.election_ticks

        self.is_asked_to_campaign = False
        """The leader of this term hands over to this member, which could not campaign at once."""

        # A leader's alone; zero and empty on everybody else.
        self.transferee = NO_MEMBER
        """Who leadership is being handed to; proposals are dropped meanwhile."""
        self.pending_change_index = LogIndex(0)
        """A membership change may be in the log up to here: no other before this is applied.

        Set when a leadership begins; nobody else looks at it."""
        self.uncommitted_bytes = 0
        self.has_unsent_proposals = False
        """Proposals were appended since the last Ready; the next Ready sends them."""
        self.reads = PendingReads(config.reads_pending_max)

        self.superseded: ConfState | None = None
        """The configuration of the state that a snapshot will replace, until it has; else None.

        The member acts by the snapshot's already, while entries below it may still be applied.
        """

        # What leaves with the next Ready.
        self.messages: list[Message] = []
        """To peers, at once."""
        self.after_append: list[Message] = []
        """To peers and to this member itself, once the term, vote and entries so far are synced."""
        self.read_states: list[ReadState] = []

    @property
    def configuration(self) -> ConfState:
        """Return the configuration this member acts by."""
        return self.tracker.configuration

    @property
    def hard_state(self) -> HardState:
        """Return what must be synced before it is implied by a message."""
        return HardState(self.term, self.vote, self.log.commit_index)

    @property
    def soft_state(self) -> SoftState:
        """Return what the member believes about leadership."""
        return SoftState(self.leader, self.role)

    @property
    def is_promotable(self) -> bool:
        """Tell whether the member may campaign: it votes, and has the log it says it has."""
        member_id = self.config.member_id
        return member_id in self.tracker.voters and self.log.unstable.snapshot is None

    def has_committed_in_term(self) -> bool:
        """Tell whether an entry of the current term is committed.

        Only then does a leader know what is committed (Raft paper, section 8).
        """
        return self.log.matches(self.log.commit_index, self.term)

    def reset(self, term: Term) -> None:
        """Forget what belongs to the role; begin ``term`` if it is a new one."""
        assert term >= self.term, "terms never go back"
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
        """Act by ``configuration`` from now on."""
        self.tracker.adopt(configuration, self.log.last_index)
        self.tell(Reconfigured(configuration))

    def send(self, message: Message) -> None:
        """Let ``message`` leave at once: it promises nothing."""
        assert message.to != self.config.member_id
        assert message.kind not in _PROMISES, "what it promises must be synced first"
        self.messages.append(message)

    def send_after_append(self, message: Message) -> None:
        """Let ``message`` leave when all that it implies is synced."""
        self.after_append.append(message)

    def refuse(self, message: Message, reason: MessageDropReason) -> None:
        """Drop ``message`` and say so."""
        self.tell(MessageDropped(message, reason))

    def is_self(self, member: MemberId) -> bool:
        """Tell whether ``member`` is this one."""
        return member == self.config.member_id
