"""Count the places of waiting consumers in the wait queues of tubes, which take memory."""

from __future__ import annotations

from typing import Final

from taskraft_service.leader.principal_counts import PrincipalCounts
from taskraft_service.leader.waiting_consumer import WaitingConsumer


class WaitingPlaces:
    """The places of each consumer, one for each of its tubes.

    A place takes about 60 bytes, and 150 bytes more after a claim of the consumer found no task in
    the tube. While the patterns of a consumer are compared with tubes, each tube that was not
    compared yet counts as a place.
    """

    def __init__(self) -> None:
        self.counts: Final = PrincipalCounts()
        self._of_consumers: dict[WaitingConsumer, int] = {}

    def set(self, consumer: WaitingConsumer, places: int) -> None:
        """Set the number of places of a consumer; 0 if the consumer does not wait any more."""
        before = self._of_consumers.pop(consumer, 0)
        if places:
            self._of_consumers[consumer] = places
        self.counts.add(places - before, consumer.profile.principal)

    def add_one(self, consumer: WaitingConsumer) -> None:
        """Count one place more, because the consumer also waits on a new tube."""
        self.set(consumer, self._of_consumers.get(consumer, 0) + 1)
