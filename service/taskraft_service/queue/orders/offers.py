"""Look at what a tube offers to a take: everything, some types, or what is urgent enough.

A look takes nothing out: a task leaves all orders of its tube when it is claimed, or when it ends.
So the views stack, and what a take passes by stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import Final

from taskraft_service.queue.entities.ready_order import Offers
from taskraft_service.queue.store.ordered_index import NOTHING, OrderedIndex, OrderKey

LANE_END: Final[OrderKey] = (0, (1 << 63) - 1, (1 << 64) - 2)
"""Above every entry in order (of lane 0), below those at the back (of lanes from 1)."""


class OfTypes:
    """What a tube offers of some types; takes time in proportion to how many those are."""

    __slots__ = ("_orders",)

    def __init__(self, orders: Sequence[OrderedIndex]) -> None:
        """Look at the orders of the types."""
        self._orders = orders

    def least(self) -> OrderKey | None:
        """Return the entry of the task that is to be taken next, or None."""
        leasts = [least for order in self._orders if (least := order.least()) is not None]
        return min(leasts, default=None)

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries above one, in order.

        They must not change meanwhile.
        """
        return merge(*(order.ordered(after) for order in self._orders))

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return entries of about so many tasks that will be taken next."""
        share = max(count // max(len(self._orders), 1), 1)
        return [entry for order in self._orders for entry in order.coming(share)]


class ScanBudget:
    """How many tasks one take may still pass by one by one: it holds up the entry that it is in.

    Each of its tubes may use up an equal share, whatever it is asked for how often: what stands in
    the way in one does not cut the others short.
    """

    __slots__ = ("_left", "_share", "cut_short")

    def __init__(self, passed_max: int, tubes: int) -> None:
        """Begin a take from so many tubes; in each it may pass at least one task by."""
        self._share = max(passed_max // max(tubes, 1), 1)
        self._left: dict[int, int] = {}
        self.cut_short = False
        """Whether the take has looked no further in one of its tubes."""

    def allows(self, tube: int) -> bool:
        """Tell whether one more task of a numbered tube may be passed by, and count it."""
        left = self._left.get(tube, self._share)
        if left == 0:
            self.cut_short = True
            return False
        self._left[tube] = left - 1
        return True


class Urgent:
    """What others offer, as far as it is urgent enough; for the time of one take.

    Where the entries go by lane and rank, those in order end at the first that is not, and the
    others behind it are passed over at once. Passed one by one are only those at the front or the
    back, and everything where a driver or the turns of sub-queues make the order.

    Args:
        offers: what is looked at.
        suits: tells whether the task of an entry is urgent enough.
        goes_by_rank: whether the entries go by lane and rank, and ``suits`` by rank.
        has_back: whether there may be entries at the back.
        may_pass: asked before one that is not urgent enough is passed; if not, nothing more comes.
    """

    __slots__ = ("_goes_by_rank", "_has_back", "_may_pass", "_offers", "_passed", "_suits")

    def __init__(
        self,
        offers: Offers,
        suits: Callable[[OrderKey], bool],
        *,
        goes_by_rank: bool,
        has_back: bool,
        may_pass: Callable[[], bool],
    ) -> None:
        self._offers = offers
        self._suits = suits
        self._goes_by_rank = goes_by_rank
        self._has_back = has_back
        self._may_pass = may_pass
        self._passed: OrderKey = NOTHING
        """What comes up while the take goes on stands behind what is claimed, and so behind it."""

    def least(self) -> OrderKey | None:
        """Return the entry of the task that is to be taken next, or None."""
        if self._passed == NOTHING:
            least = self._offers.least()
            if least is None or self._suits(least):
                return least
            if not self._may_pass():
                return None
            self._passed = self._end_of_lane(least)
        return next(self.ordered(self._passed), None)

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries above one, in order.

        They must not change meanwhile.
        """
        if after == LANE_END and not self._has_back:
            return
        entries = self._offers.ordered(after)
        while (entry := next(entries, None)) is not None:
            if self._suits(entry):
                yield entry
                continue
            if not self._may_pass():
                return
            self._passed = max(self._passed, self._end_of_lane(entry))
            if self._passed == LANE_END:
                yield from self.ordered(LANE_END)
                return

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return entries of about so many tasks that will be taken next, and perhaps of others."""
        return self._offers.coming(count)

    def _end_of_lane(self, entry: OrderKey) -> OrderKey:
        """Return up to where nothing is urgent enough, since an entry is not."""
        return LANE_END if self._goes_by_rank and entry[0] == 0 else entry
