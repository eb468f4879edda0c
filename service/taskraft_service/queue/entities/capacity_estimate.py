"""Reckon what changes that are done together need in tubes with a capacity."""

from __future__ import annotations

from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.tube import QueueTube


class CapacityEstimate:
    """By tube: tasks and bytes that come, less those that leave."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._wanted: dict[int, tuple[QueueTube, int, int]] = {}

    def comes(self, tube: QueueTube, tasks: int, payload_bytes: int) -> None:
        """Note what comes to a tube, or, negative, what leaves it."""
        if tube.has_capacity:
            _, more_tasks, more_bytes = self._wanted.get(tube.number, (tube, 0, 0))
            self._wanted[tube.number] = (tube, more_tasks + tasks, more_bytes + payload_bytes)

    def refusal_of(self, tube: QueueTube, tasks: int, payload_bytes: int) -> Refusal | None:
        """Return why there is no room for so much more, beside what was noted, or None."""
        _, more_tasks, more_bytes = self._wanted.get(tube.number, (tube, 0, 0))
        return tube.full(more_tasks + tasks, more_bytes + payload_bytes)

    def claim(self, tube: QueueTube, payload_bytes: int) -> Refusal | None:
        """Note what a task of a tube grows or shrinks by, or return why there is no room for it."""
        refusal = self.refusal_of(tube, 0, payload_bytes) if payload_bytes > 0 else None
        if refusal is None:
            self.comes(tube, 0, payload_bytes)
        return refusal

    def refusal(self) -> Refusal | None:
        """Return which tube has no room for all that comes, or None."""
        for tube, tasks, payload_bytes in self._wanted.values():
            full = tube.full(tasks, payload_bytes)
            if full is not None:
                return full
        return None
