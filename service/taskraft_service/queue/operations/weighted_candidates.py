"""Take from several tubes in proportion to weights.

Stride scheduling (C. A. Waldspurger, W. E. Weihl: "Stride scheduling: deterministic
proportional-share resource management", 1995): each tube has a pass, which grows with every task
taken from it by a stride in inverse proportion to its weight; the tube with the least pass is next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from taskraft_service.queue.operations.candidates import Candidates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft_service.queue.entities.tube import QueueTube
    from taskraft_service.queue.orders.offers import Offers
    from taskraft_service.queue.state.queue_state import QueueState

STRIDE: Final = 1_000_000
"""Stride of weight 1; also the largest weight."""
LAG_MAX: Final = 2 * STRIDE
"""How far a tube may be behind the others: one that was empty for long does not make up for it."""


class WeightedCandidates(Candidates):
    """The tasks that some tubes offer, each tube's in its own order, the tubes by their weights."""

    __slots__ = ("_passes", "_weights")

    def __init__(
        self,
        ledger: QueueState,
        tubes: Sequence[QueueTube],
        offers: Sequence[Offers],
        weights: Sequence[int],
    ) -> None:
        """Look at what is offered of each tube; ``weights`` are from 1, one for each tube."""
        self._weights = weights
        furthest = max((tube.share for tube in tubes if tube.ready.least() is not None), default=0)
        self._passes = [max(tube.share, furthest - LAG_MAX) for tube in tubes]
        super().__init__(ledger, tubes, offers)

    def proceed(self) -> None:
        """Charge the tube whose task was claimed, and let it compete with its next one."""
        place = self._heads[0][-1]
        self._passes[place] += STRIDE // self._weights[place]
        self._tubes[place].share = self._passes[place]
        super().proceed()

    def _head(self, place: int) -> tuple[int, ...] | None:
        """Return how soon a tube is next, or None where it offers nothing."""
        return (self._passes[place], place) if self._offers[place].least() else None
