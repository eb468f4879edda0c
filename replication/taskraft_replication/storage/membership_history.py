"""Keep the memberships of a group, each with the index of its entry."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from taskraft_replication.core.types import ConfState, LogIndex, Roster, Term
from taskraft_replication.errors import LogDamaged

BOOTSTRAP_INDEX = LogIndex(1)
"""A new group starts as if a snapshot of this index had been taken. A member that joins later
therefore gets the first membership with a snapshot."""

BOOTSTRAP_TERM = Term(1)

Memberships: TypeAlias = list[tuple[LogIndex, ConfState]]
"""Memberships in order of index; each is valid from its index on."""


class MembershipHistory:
    """The memberships that a start or a snapshot may need, oldest first; never empty.

    Used on the event loop. The methods that change the history return the memberships to save.
    """

    def __init__(self, memberships: Sequence[tuple[LogIndex, ConfState]]) -> None:
        assert memberships
        self._memberships: Memberships = list(memberships)
        self.floor: LogIndex | None = None
        """Index at which a snapshot will need the membership, or None."""

    def __len__(self) -> int:
        return len(self._memberships)

    @property
    def first_index(self) -> LogIndex:
        """Index of the oldest membership that is kept."""
        return self._memberships[0][0]

    @property
    def last_index(self) -> LogIndex:
        """Index of the latest membership."""
        return self._memberships[-1][0]

    @property
    def is_at_its_beginning(self) -> bool:
        """Return whether the membership of the group has never changed."""
        return self.last_index == BOOTSTRAP_INDEX

    def at(self, index: LogIndex) -> ConfState:
        """Return the membership at ``index``.

        Raises:
            LogDamaged: the oldest membership is newer than ``index``.
        """
        place = bisect_right(self._memberships, index, key=lambda each: each[0]) - 1
        if place < 0:
            raise LogDamaged(f"the membership file has no membership for entry {index}")
        return self._memberships[place][1]

    def all(self) -> Memberships:
        """Return a copy of all memberships."""
        return list(self._memberships)

    def begin_with(self, roster: Roster) -> Memberships:
        """Set the roster of a new group."""
        assert self.is_at_its_beginning
        founders = replace(self._memberships[-1][1], roster=roster)
        return self.restart(BOOTSTRAP_INDEX, founders)

    def add(self, index: LogIndex, conf_state: ConfState, durable: LogIndex) -> Memberships:
        """Add a membership.

        Memberships before the membership at ``durable`` are dropped, because no start needs them.
        Later memberships are kept when an entry is applied again after a restart, because a stored
        membership is the only proof that its entry is committed (see ``GroupStorage.open``).
        """
        if self.floor is not None:
            durable = min(durable, self.floor)
        earlier = [each for each in self._memberships if each[0] < index]
        again = [each for each in self._memberships if each[0] >= index]
        is_known = bool(again) and again[0][0] == index
        assert not is_known or again[0][1] == conf_state, "a committed membership never changes"
        oldest = max(0, bisect_right(earlier, durable, key=lambda each: each[0]) - 1)
        self._memberships = [*earlier[oldest:], (index, conf_state), *again[is_known:]]
        return self.all()

    def restart(self, index: LogIndex, conf_state: ConfState) -> Memberships:
        """Replace all memberships by one, as an installed snapshot does."""
        self._memberships = [(index, conf_state)]
        return self.all()
