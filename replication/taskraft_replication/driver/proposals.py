"""Track the proposals of this leader, and resolve them by index and term."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_replication.core.confchange import ConfChange
from taskraft_replication.core.errors import DropReason, ProposalDropped
from taskraft_replication.core.raft import RaftCore
from taskraft_replication.core.types import Entry, LogIndex, RaftRole, Term
from taskraft_replication.effects import ResultFuture
from taskraft_replication.errors import ChangeRefused, NotRaftLeader, ProposalLost


class PendingProposals:
    """The proposals of this leader that are not applied yet, by index.

    The index alone does not identify a proposal: another leader may have put another entry there.
    Resolving by index alone would report success to a caller whose write was lost.
    """

    def __init__(self) -> None:
        self._waiting: dict[LogIndex, tuple[Term, ResultFuture[object]]] = {}

    def propose(self, core: RaftCore, data: bytes, outcome: ResultFuture[object]) -> None:
        """Append an entry to the core's log; it is sent and stored when the next Ready is taken."""
        try:
            entry = core.propose_unsent(data)
        except ProposalDropped as error:
            is_led_here = error.reason is not DropReason.NOT_LEADER
            _fail(outcome, error if is_led_here else NotRaftLeader(core.leader))
            return
        self._add(entry.index, entry.term, outcome)

    def propose_change(
        self, core: RaftCore, change: ConfChange, outcome: ResultFuture[object]
    ) -> None:
        """Append a membership change to the core's log.

        ``outcome`` fails with ``ChangeRefused`` if the change cannot be made now. An empty entry is
        then appended in its place.
        """
        try:
            if core.role is not RaftRole.LEADER:
                raise NotRaftLeader(core.leader)  # noqa: TRY301 - one way out for all reasons
            fault = core.propose_conf_change(change)
        except (NotRaftLeader, ProposalDropped) as error:
            _fail(outcome, error)
            return
        if fault is None:
            self._add(core.last_index, core.term, outcome)
        else:
            _fail(outcome, ChangeRefused(fault))

    def _add(self, index: LogIndex, term: Term, outcome: ResultFuture[object]) -> None:
        before = self._waiting.get(index)
        if before is not None:
            assert before[0] < term, "a leader proposes once per index"
            _fail(before[1], ProposalLost(index, "another leader replaced the entry"))
        self._waiting[index] = (term, outcome)

    def applied(self, entries: Sequence[Entry], results: Sequence[object]) -> None:
        """Resolve the proposals at the indexes of ``entries``, which have one result each."""
        if not self._waiting:
            return  # no caller waits, as on a follower
        for entry, result in zip(entries, results, strict=True):
            waiting = self._waiting.pop(entry.index, None)
            if waiting is None:
                continue
            term, outcome = waiting
            if term != entry.term:
                _fail(outcome, ProposalLost(entry.index, "another leader replaced the entry"))
            elif not outcome.done():
                outcome.set_result(result)

    def lose_after(self, index: LogIndex, reason: str) -> None:
        """Fail the proposals above ``index``, because their outcome is unknown."""
        for lost in [each for each in self._waiting if each > index]:
            _fail(self._waiting.pop(lost)[1], ProposalLost(lost, reason))

    def lose_all(self, reason: str) -> None:
        """Fail all proposals; their outcome is unknown, because another leader may commit them."""
        waiting, self._waiting = self._waiting, {}
        for index, (_, outcome) in waiting.items():
            _fail(outcome, ProposalLost(index, reason))


def _fail(outcome: ResultFuture[object], error: Exception) -> None:
    if not outcome.done():
        outcome.set_exception(error)
