"""Let the consumers whose time is over leave once no tube offers them a task.

While the log accepts no entry, for example without a majority, ready tasks stay in their tubes
although consumers wait for them. A consumer that then left without tasks would report that there
are none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from taskraft_service.leader.waiting_consumer import WaitingConsumer

LEAVE_STEPS_MAX: Final = 300
"""Number of steps, about 3 us each, after which the other consumers are looked at with the next
entry."""


class Offer(NamedTuple):
    """Whether a tube may offer a task to a consumer, and the number of steps of the answer."""

    exists: bool
    steps: int


class LeavingConsumers:
    """The consumers whose time is over, in order.

    Args:
        offer_for: looks for a tube that offers a task to a consumer.
    """

    __slots__ = ("_offer_for", "waiting")

    def __init__(self, offer_for: Callable[[WaitingConsumer], Offer]) -> None:
        self._offer_for = offer_for
        self.waiting: Final[dict[WaitingConsumer, Callable[[], None]]] = {}
        """The consumers that may not leave yet, with the functions that tell that they may."""

    def add(self, consumer: WaitingConsumer, may_leave: Callable[[], None]) -> None:
        """Call ``may_leave`` once no tube offers the consumer a task that no claim expects."""
        if self._offer_for(consumer).exists:
            self.waiting[consumer] = may_leave
        else:
            may_leave()

    def discard(self, consumer: WaitingConsumer) -> None:
        """Forget a consumer, if it is known."""
        self.waiting.pop(consumer, None)

    def check(self) -> bool:
        """Let consumers leave to which no tube offers a task, up to a limit of steps.

        A consumer that may not leave yet is the last one then.

        Returns:
            Whether the limit left consumers that were not looked at.
        """
        steps = 0
        for consumer in list(self.waiting):
            if steps >= LEAVE_STEPS_MAX:
                return True
            may_leave = self.waiting.pop(consumer)
            offer = self._offer_for(consumer)
            steps += offer.steps
            if offer.exists:
                self.waiting[consumer] = may_leave
            else:
                may_leave()
        return False
