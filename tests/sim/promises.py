"""Check each message when it is sent: its state must be durable, and its size bounded."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from taskraft_replication.core.config import MESSAGE_BYTES_MAX
from taskraft_replication.core.log import payload_bytes
from taskraft_replication.core.types import MemberId, Message, MessageKind, Term
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.member import Member

_BEFORE_A_TERM = frozenset({MessageKind.PRE_VOTE, MessageKind.PRE_VOTE_REPLY})


class Promises:
    """All votes that were ever granted, and the rules for messages."""

    def __init__(self) -> None:
        self._votes: dict[Term, dict[MemberId, MemberId]] = defaultdict(dict)

    def votes_of(self, term: Term) -> dict[MemberId, MemberId]:
        """Return who voted for whom in ``term``."""
        return self._votes[term]

    def sent(self, member: Member, message: Message) -> None:
        """Check a message at the moment in which it leaves."""
        if message.kind in _BEFORE_A_TERM:
            return
        hard_state = member.durable_hard_state()
        demand(
            message.term <= hard_state.term,
            f"{member.id} sent {message.kind.value} of term {message.term}, "
            f"but only term {hard_state.term} is durable",
        )
        match message.kind:
            case MessageKind.VOTE:
                self._vote(member, message.term, member.id)
            case MessageKind.VOTE_REPLY if not message.reject:
                self._vote(member, message.term, message.to)
            case MessageKind.APPEND_REPLY if not message.reject:
                self._acknowledge(member, message)
            case MessageKind.APPEND:
                self._append(member, message)
            case _:
                pass

    def _vote(self, member: Member, term: Term, candidate: MemberId) -> None:
        """One vote per term and member, across restarts, and durable before it is sent. [5]"""
        hard_state = member.durable_hard_state()
        durable = hard_state.term > term or hard_state.vote == candidate
        demand(durable, f"{member.id} sent a vote that is not durable")
        earlier = self._votes[term].setdefault(member.id, candidate)
        demand(
            earlier == candidate,
            f"{member.id} voted for {earlier} and for {candidate} in term {term}",
        )

    def _acknowledge(self, member: Member, message: Message) -> None:
        """What is acknowledged is synced, unless a later term has replaced it already. [3]"""
        synced = member.view.last_index()
        superseded = member.durable_hard_state().term > message.term
        demand(
            superseded or message.index <= synced,
            f"{member.id} acknowledged {message.index}, but only {synced} is synced",
        )

    def left(self, member: Member, message: Message) -> None:
        """Check a message when it goes on its way, perhaps later and joined with others.

        What it promised when it was handed over must hold all the time.
        """
        if message.kind is MessageKind.APPEND:
            self._joined(member, message)
        else:
            self.sent(member, message)

    def _append(self, member: Member, message: Message) -> None:
        """Messages keep to their limit, except for a single large entry. [8]"""
        size = payload_bytes(message.entries)
        demand(
            len(message.entries) <= 1 or size <= member.config.message_bytes_max,
            f"{member.id} sent {size} bytes in one message",
        )
        demand(
            message.index + len(message.entries) <= member.driver.core.last_index
            or member.driver.core.term > message.term,
            f"{member.id} sent entries that it does not have",
        )

    def _joined(self, member: Member, message: Message) -> None:
        """Joined appends keep to the limit of all, and are entries in their order. [8]"""
        entries = message.entries
        demand(
            len(entries) <= 1 or payload_bytes(entries) <= MESSAGE_BYTES_MAX,
            f"{member.id} has joined too much in one message",
        )
        demand(
            [entry.index - message.index for entry in entries] == [*range(1, len(entries) + 1)],
            f"{member.id} has joined entries that do not follow on each other",
        )
