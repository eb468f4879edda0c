"""Estimate the capacity that changes of one command need together."""

from __future__ import annotations

from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.tube import QueueTube


class CapacityEstimate:
    """Net tasks and bytes per tube."""

    def __init__(self) -> None:
        """Start without changes."""
        self._wanted: dict[int, tuple[QueueTube, int, int]] = {}

    def add(self, tube: QueueTube, tasks: int, payload_bytes: int) -> None:
        """Add the tasks and bytes that enter a tube; negative for those that leave."""
        if tube.has_capacity:
            _, more_tasks, more_bytes = self._wanted.get(tube.number, (tube, 0, 0))
            self._wanted[tube.number] = (tube, more_tasks + tasks, more_bytes + payload_bytes)

    def refusal_of(self, tube: QueueTube, tasks: int, payload_bytes: int) -> Refusal | None:
        """Return why a tube lacks capacity for more, beside what was added, or None."""
        _, more_tasks, more_bytes = self._wanted.get(tube.number, (tube, 0, 0))
        return tube.full(more_tasks + tasks, more_bytes + payload_bytes)

    def claim(self, tube: QueueTube, payload_bytes: int) -> Refusal | None:
        """Add the growth of a task of a tube, or return why the tube lacks capacity for it."""
        refusal = self.refusal_of(tube, 0, payload_bytes) if payload_bytes > 0 else None
        if refusal is None:
            self.add(tube, 0, payload_bytes)
        return refusal

    def refusal(self) -> Refusal | None:
        """Return which tube lacks capacity for all changes, or None."""
        for tube, tasks, payload_bytes in self._wanted.values():
            full = tube.full(tasks, payload_bytes)
            if full is not None:
                return full
        return None
