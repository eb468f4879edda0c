"""Count the READY and TAKEN tasks of each sub-queue of a tube."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskraft import AsyncClient, Task, TaskPage

PAGE_SIZE: Final = 1_000
"""Maximum number of tasks of one call."""
READY_CALLS_MAX: Final = 5
"""Maximum number of calls that list READY tasks. One call lists the TAKEN tasks, and one call the
tasks that a take can get."""
SUBQUEUES_MAX: Final = 20
"""Maximum number of sub-queues of one answer."""
HOLDERS_MAX: Final = 3
"""Maximum number of sessions that are named for each sub-queue."""
KINDS: Final = ("utube", "utubettl")
"""Kinds of tubes with sub-queues."""


@dataclass(slots=True)
class Subqueue:
    """One sub-queue with its tasks."""

    name: str
    """Name; empty: the sub-queue of the tasks without a name of a sub-queue."""
    ready: int = 0
    taken: int = 0
    oldest_ms: int = 0
    """Time since when the oldest counted READY task is READY, in ms since the Unix epoch; 0: none.
    """
    is_next: bool = False
    """True: a take can get a task of this sub-queue now."""
    holders: list[str] = field(default_factory=list)
    """First 8 characters of the ids of sessions that hold its tasks, at most `HOLDERS_MAX`."""


@dataclass(frozen=True, slots=True)
class SubqueueCounts:
    """The sub-queues with READY or TAKEN tasks of a tube, those with most READY tasks first."""

    shown: tuple[Subqueue, ...]
    """At most `SUBQUEUES_MAX` sub-queues."""
    count: int
    """Number of sub-queues that were found."""
    is_complete: bool
    """False: the tube has more tasks than were counted, so the numbers are minimums."""


async def count_subqueues(client: AsyncClient, tube: str, timeout_seconds: float) -> SubqueueCounts:
    """Count the tasks of the sub-queues of a tube, in at most `READY_CALLS_MAX` + 2 calls.

    Raises:
        TubeNotFound: the tube does not exist.
    """

    async def page(where: str, *, order: str = "", token: str = "") -> TaskPage:
        return await client.tube(tube).page(
            where,
            order_by=order,
            size=PAGE_SIZE,
            token=token,
            payload=False,
            timeout=timeout_seconds,
        )

    taken, takeable, last = await asyncio.gather(
        page("state = TAKEN"), page("", order="taking"), page("state = READY")
    )
    ready, calls = [*last.tasks], 1
    while last.next_token and calls < READY_CALLS_MAX:
        last = await page("state = READY", token=last.next_token)
        ready += last.tasks
        calls += 1
    is_complete = not (last.next_token or taken.next_token or takeable.next_token)
    return counts_of(ready, taken.tasks, takeable.tasks, is_complete=is_complete)


def counts_of(
    ready: Iterable[Task], taken: Iterable[Task], takeable: Iterable[Task], *, is_complete: bool
) -> SubqueueCounts:
    """Return the counts of three lists; `takeable` has the tasks that a take can get now."""
    found: dict[str, Subqueue] = {}

    def subqueue_of(task: Task) -> Subqueue:
        name = task.message.spec.subqueue
        return found.setdefault(name, Subqueue(name))

    for task in ready:
        one, since_ms = subqueue_of(task), task.message.since_ms
        one.ready += 1
        one.oldest_ms = min(one.oldest_ms or since_ms, since_ms)
    for task in taken:
        one, holder = subqueue_of(task), task.message.session_id[:8]
        one.taken += 1
        if holder and holder not in one.holders and len(one.holders) < HOLDERS_MAX:
            one.holders.append(holder)
    for task in takeable:
        one = subqueue_of(task)
        one.is_next = True
        one.ready = max(one.ready, 1)
        one.oldest_ms = one.oldest_ms or task.message.since_ms
    ordered = sorted(found.values(), key=lambda one: (-one.ready, -one.taken, one.name))
    return SubqueueCounts(tuple(ordered[:SUBQUEUES_MAX]), len(ordered), is_complete)
