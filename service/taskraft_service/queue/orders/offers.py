"""View the ready tasks of a tube: all tasks, tasks of some types, or sufficiently urgent tasks.

Reading a view removes nothing. A task leaves all orders of its tube when it is taken or ends. Views
can therefore be stacked, and the tasks that a take skips stay in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import Final

from taskraft_service.queue.entities.ready_tasks import Offers
from taskraft_service.queue.store.ordered_index import NOTHING, OrderedIndex, OrderKey

LANE_END: Final[OrderKey] = (0, (1 << 63) - 1, (1 << 64) - 2)
"""Entry after all entries of lane 0 (normal order) and before those of the lanes from 1 (back)."""


class OfTypes:
    """The ready tasks of some types; each operation takes time in proportion to their number."""

    __slots__ = ("_orders",)

    def __init__(self, orders: Sequence[OrderedIndex]) -> None:
        """Use the orders of the types."""
        self._orders = orders

    def least(self) -> OrderKey | None:
        """Return the entry of the next task to take, or None."""
        leasts = [least for order in self._orders if (least := order.least()) is not None]
        return min(leasts, default=None)

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries after the given one, in order.

        The entries must not change during the iteration.
        """
        return merge(*(order.ordered(after) for order in self._orders))

    def coming(self, count: int) -> Sequence[OrderKey]:
        """Return the entries of about ``count`` tasks that will be taken next."""
        share = max(count // max(len(self._orders), 1), 1)
        return [entry for order in self._orders for entry in order.coming(share)]


class ScanBudget:
    """Scan budget of one take: how many unsuitable tasks the take may still skip.

    The budget is bounded because the take runs while its log entry is applied. Each tube gets an
    equal share, so a tube with many unsuitable tasks does not shorten the scan of the others.
    """

    __slots__ = ("_left", "_share", "cut_short")

    def __init__(self, passed_max: int, tubes: int) -> None:
        """Divide ``passed_max`` among ``tubes`` tubes; each tube gets at least one task."""
        self._share = max(passed_max // max(tubes, 1), 1)
        self._left: dict[int, int] = {}
        self.cut_short = False
        """True if the budget of a tube is used up, so that its scan ended early."""

    def try_skip(self, tube: int) -> bool:
        """Return whether the take may skip another task of a tube, and count that task."""
        left = self._left.get(tube, self._share)
        if left == 0:
            self.cut_short = True
            return False
        self._left[tube] = left - 1
        return True


class Urgent:
    """The sufficiently urgent tasks of another view, for the duration of one take.

    If the entries are sorted by lane and rank, the first entry of lane 0 that is not urgent enough
    ends that lane, and the rest of the lane is skipped at once. Entries of the front and back lanes
    are skipped one by one. If a driver or the turns of sub-queues define the order, all entries are
    skipped one by one.

    Args:
        offers: the view to filter.
        suits: returns whether the task of an entry is urgent enough.
        goes_by_rank: True if entries are sorted by lane and rank, and ``suits`` depends on rank.
        has_back: True if there may be entries in the back lane.
        may_pass: called before an entry is skipped; the view ends if it returns False.
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
        """Last entry known to be skipped.

        An entry that is added during the take comes after the claimed entries, so after this one.
        """

    def least(self) -> OrderKey | None:
        """Return the entry of the next task to take, or None."""
        if self._passed == NOTHING:
            least = self._offers.least()
            if least is None or self._suits(least):
                return least
            if not self._may_pass():
                return None
            self._passed = self._end_of_lane(least)
        return next(self.ordered(self._passed), None)

    def ordered(self, after: OrderKey = NOTHING) -> Iterator[OrderKey]:
        """Yield the entries after the given one, in order.

        The entries must not change during the iteration.
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
        """Return about ``count`` next entries of the other view, some perhaps not urgent enough."""
        return self._offers.coming(count)

    def _end_of_lane(self, entry: OrderKey) -> OrderKey:
        """Return the last entry that can be skipped together with ``entry``."""
        return LANE_END if self._goes_by_rank and entry[0] == 0 else entry
