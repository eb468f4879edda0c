"""Limit takes to the concurrency and the rate of their tubes.

Takes on tubes without such limits do not use this module. Limited tubes are asked in rounds. Each
round takes at most the smallest number that one of them allows, so no tube exceeds its limit in any
order of the tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from taskraft_service.queue.entities.tube import QueueTask, QueueTube


class Choice(Protocol):
    """Selects the most urgent tasks of some tubes."""

    def __call__(
        self,
        tubes: Sequence[QueueTube],
        room: int,
        bytes_max: int,
        has_some: bool,  # noqa: FBT001 - by position, as the rest
        /,
    ) -> list[QueueTask]:
        """Return up to ``room`` tasks with at most ``bytes_max`` bytes in total.

        The first task may exceed ``bytes_max``, unless ``has_some`` says that the take already has
        a task.
        """


def open_tubes(
    tubes: Sequence[QueueTube], now_ms: int
) -> tuple[Sequence[QueueTube], Mapping[int, int]]:
    """Return the tubes that allow a take now, and the number of tasks that limited tubes allow."""
    for tube in tubes:
        if tube.has_limits:
            break
    else:
        return tubes, {}
    opened: list[QueueTube] = []
    allowed: dict[int, int] = {}
    for tube in tubes:
        takeable = tube.takeable(now_ms)
        if takeable is not None:
            if takeable <= 0:
                continue
            allowed[tube.number] = takeable
        opened.append(tube)
    return opened, allowed


def choose_within(
    tubes: Sequence[QueueTube],
    allowed: Mapping[int, int],
    room: int,
    bytes_max: int,
    choice: Choice,
) -> list[QueueTask]:
    """Select tasks of tubes with limits."""
    left = dict(allowed)
    chosen: list[QueueTask] = []
    while tubes and room > 0:
        wanted = min(room, *left.values()) if left else room
        found = choice(tubes, wanted, bytes_max, bool(chosen))
        chosen += found
        if len(found) < wanted:
            break
        room -= wanted
        for task in found:
            bytes_max -= task.payload_bytes
            if task.tube.number in left:
                left[task.tube.number] -= 1
        tubes = [tube for tube in tubes if left.get(tube.number, 1) > 0]
        left = {number: count for number, count in left.items() if count > 0}
    return chosen
