"""Remember who waits for which entry, and tell them by index and term what became of it."""

from __future__ import annotations

from replication.core.types import Entry, LogIndex, Term
from replication.errors import ProposalLost, ReplicationError
from replication.outcome import Outcome


class Proposals:
    """The proposals of this leader that are not applied yet, by index.

    An index alone proves nothing: another leader may have put another entry there (PySyncObj told
    four clients of success that way).
    """

    def __init__(self) -> None:
        self._waiting: dict[LogIndex, tuple[Term, Outcome[object]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, index: LogIndex, term: Term, outcome: Outcome[object]) -> None:
        """Let ``outcome`` wait for the entry at ``index`` of ``term``."""
        before = self._waiting.get(index)
        if before is not None:
            assert before[0] < term, "a leader proposes once per index"
            _fail(before[1], ProposalLost(index, "another entry took its place"))
        self._waiting[index] = (term, outcome)

    def applied(self, entry: Entry, result: object) -> None:
        """Tell whoever waits for this place in the log."""
        waiting = self._waiting.pop(entry.index, None)
        if waiting is None:
            return
        term, outcome = waiting
        if term != entry.term:
            _fail(outcome, ProposalLost(entry.index, "another entry took its place"))
        elif not outcome.done():
            outcome.set_result(result)

    def lose_after(self, index: LogIndex, reason: str) -> None:
        """Tell those who wait for entries behind ``index`` that the outcome is unknown."""
        for lost in [each for each in self._waiting if each > index]:
            _fail(self._waiting.pop(lost)[1], ProposalLost(lost, reason))

    def lose_all(self, reason: str) -> None:
        """Tell everybody that the outcome is unknown: it may happen yet, under another leader."""
        waiting, self._waiting = self._waiting, {}
        for index, (_, outcome) in waiting.items():
            _fail(outcome, ProposalLost(index, reason))


def _fail(outcome: Outcome[object], error: ReplicationError) -> None:
    if not outcome.done():
        outcome.set_exception(error)
