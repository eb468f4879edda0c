"""Share the takes of a tube between its sub-queues by weight.

Stride scheduling (Waldspurger and Weihl, 1995) on a virtual clock: a sub-queue that begins to offer
a task gets a turn one stride after the clock, the least turn is served, and the clock goes on to
it. A stride is a constant divided by the weight, so over any while in which two sub-queues have
tasks all the time, they are served in proportion to their weights. A sub-queue that has nothing to
offer has no turn, and keeps no credit: who comes back stands where a newcomer stands. That is why
the clock and the turns of what is offered are the whole state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

STRIDE: Final = 1 << 20
"""Virtual time between two turns of a sub-queue of weight 1; the greatest useful weight."""


class Fairness:
    """The virtual clock of one tube, and the weights of its sub-queues; others have weight 1."""

    __slots__ = ("time", "weights")

    def __init__(self, weights: Mapping[str, int]) -> None:
        """Begin at virtual time 0."""
        self.weights = weights
        self.time = 0

    def turn(self, subqueue: str) -> int:
        """Return the turn of a sub-queue that begins to offer a task now."""
        return self.time + max(STRIDE // max(self.weights.get(subqueue, 1), 1), 1)

    def serve(self, turn: int) -> None:
        """Move the clock on to a turn that is served."""
        self.time = max(self.time, turn)
