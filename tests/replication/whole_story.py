"""Run a member through every event that it can meet; the test plays its peers.

The member is founded, votes, appends, is corrected by a new leader, applies, flushes, trims,
changes its membership, installs a snapshot, leads, sends a snapshot, and closes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taskraft_replication.core.confchange import MemberChangeKind, encode
from taskraft_replication.core.types import (
    ConfState,
    Entry,
    EntryKind,
    LogIndex,
    MemberId,
    MemberInfo,
    MessageKind,
    SnapshotMeta,
    Term,
)
from taskraft_replication.membership.roster import change_of, with_roster
from tests.replication.promising_member import FOUNDERS, PromisingMember

SNAPSHOT_AT = 300
LAST = 320
_REPLACED_FROM = 46
_CHANGE_AT = 90

CHANGE = change_of(
    MemberChangeKind.ADD_LEARNER,
    MemberInfo(MemberId(4), "n4", "127.0.0.1:1", "127.0.0.1:2", "d4"),
)


class Story:
    """The sequence of events, with commands of a state machine in its entries."""

    def __init__(self, data_of: Callable[[int], bytes], snapshot: bytes = b"") -> None:
        self._data_of = data_of
        self.snapshot = snapshot
        self.committed = [
            Entry(Term(1), LogIndex(1)),
            *self.entries(2, _REPLACED_FROM - 1, 2),
            *self.entries(_REPLACED_FROM, _CHANGE_AT - 1, 3),
            Entry(Term(3), LogIndex(_CHANGE_AT), encode(CHANGE), EntryKind.CONF_CHANGE_V2),
            *self.entries(_CHANGE_AT + 1, LAST, 3),
        ]
        """The committed entries at the end of the story, for any number of crashes."""

    def entries(self, first: int, last: int, term: int) -> list[Entry]:
        return [
            Entry(Term(term), LogIndex(index), self._data_of(index))
            for index in range(first, last + 1)
        ]

    def part(self, first: int, last: int) -> Sequence[Entry]:
        """Return the committed entries from ``first`` to ``last``."""
        return self.committed[first - 1 : last]

    def tell(self, member: PromisingMember) -> None:
        """Run the whole story; it ends early only by an exception or the end of the process."""
        member.hear(MessageKind.VOTE, 2, 2, index=LogIndex(1), log_term=Term(1))
        for first in range(2, _REPLACED_FROM, 4):
            member.append(2, 2, self.part(first, first + 3), min(first - 1, 40))
        self._correct(member)
        for first in range(61, 120, 10):
            member.append(3, 3, self.part(first, first + 9), first - 1)
        self._catch_up_by_snapshot(member)
        self._let_lead(member)
        member.close()

    def _correct(self, member: PromisingMember) -> None:
        """Let a leader send entries that are never committed, and its successor replace them."""
        member.append(2, 2, self.entries(_REPLACED_FROM, _REPLACED_FROM, 2), 40)
        member.append(2, 2, self.entries(_REPLACED_FROM + 1, 80, 2), 40)
        member.storage.sync_mark()
        member.append(3, 3, self.part(_REPLACED_FROM, 60), 60)

    def _catch_up_by_snapshot(self, member: PromisingMember) -> None:
        after = ConfState(FOUNDERS.voters, (MemberId(4),))
        conf_state = with_roster(after, CHANGE, FOUNDERS.roster)
        meta = SnapshotMeta(LogIndex(SNAPSHOT_AT), Term(3), conf_state)
        member.take_snapshot(3, 3, meta, self.snapshot)
        member.append(3, 3, self.part(SNAPSHOT_AT + 1, LAST), LAST)

    def _let_lead(self, member: PromisingMember) -> None:
        member.driver.campaign()
        member.settle()
        member.hear(MessageKind.PRE_VOTE_REPLY, 2, 4)
        member.hear(MessageKind.VOTE_REPLY, 2, 4)
        last = member.storage.view.last_index()
        member.hear(MessageKind.APPEND_REPLY, 2, 4, index=last)
        # This member has no log: the leader's log does not reach back far enough.
        before = LogIndex(last - 1)
        member.hear(MessageKind.APPEND_REPLY, 3, 4, index=before, reject=True)
        ((message, _),) = member.snapshots
        member.driver.snapshot_sent(message.to, ok=True)
        member.settle()

    def finish(self, member: PromisingMember) -> None:
        """Let a later leader send the missing entries to a restarted member.

        An empty entry of that leader, or of the member's own leadership, follows the committed
        entries.
        """
        whole = [*self.committed, Entry(Term(9), LogIndex(LAST + 1))]
        missing = whole[member.driver.core.commit_index :]
        if missing:
            member.append(3, 9, missing, LAST + 1)
        member.request_pump()
        member.settle()
