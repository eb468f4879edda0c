"""Check each message when it is sent: its promise must be durable, and its size bounded."""

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
        """Return the votes of ``term``, by voter."""
        return self._votes[term]

    def sent(self, member: Member, message: Message) -> None:
        """Check a message when the member hands it over for sending."""
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
        """Check that a member votes once per term, and stores the vote first. [5]"""
        hard_state = member.durable_hard_state()
        durable = hard_state.term > term or hard_state.vote == candidate
        demand(durable, f"{member.id} sent a vote that is not durable")
        earlier = self._votes[term].setdefault(member.id, candidate)
        demand(
            earlier == candidate,
            f"{member.id} voted for {earlier} and for {candidate} in term {term}",
        )

    def _acknowledge(self, member: Member, message: Message) -> None:
        """Check that acknowledged entries are synced, or already replaced by a later term. [3]"""
        synced = member.view.last_index()
        superseded = member.durable_hard_state().term > message.term
        demand(
            superseded or message.index <= synced,
            f"{member.id} acknowledged {message.index}, but only {synced} is synced",
        )

    def left(self, member: Member, message: Message) -> None:
        """Check a message when its frame is sent, perhaps later and merged with others.

        The promise must hold until the message is sent.
        """
        if message.kind is MessageKind.APPEND:
            self._joined(member, message)
        else:
            self.sent(member, message)

    def _append(self, member: Member, message: Message) -> None:
        """Check that a message keeps its size limit, except for a single large entry. [8]"""
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
        """Check that merged appends keep the size limit and the order of their entries. [8]"""
        entries = message.entries
        demand(
            len(entries) <= 1 or payload_bytes(entries) <= MESSAGE_BYTES_MAX,
            f"{member.id} has merged appends into a message above the size limit",
        )
        demand(
            [entry.index - message.index for entry in entries] == [*range(1, len(entries) + 1)],
            f"{member.id} has merged appends whose entries are not consecutive",
        )
