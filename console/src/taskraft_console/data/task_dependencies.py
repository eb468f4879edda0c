"""Find the unfinished tasks that a task depends on, and the tasks that these depend on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from taskraft import errors

if TYPE_CHECKING:
    from taskraft import AsyncClient, Task

TASKS_MAX: Final = 40
"""Maximum number of tasks that are read."""
DEPTH_MAX: Final = 5
"""Maximum length of a chain of dependencies."""


async def find_dependencies(
    client: AsyncClient, task: Task, timeout_seconds: float
) -> tuple[Sequence[Task], bool]:
    """Return the tasks that a task waits for, directly or not, and whether these are all.

    Tasks that have ended meanwhile, or that the caller may not read, are left out.
    """
    known = {(task.tube, task.id)}
    found: list[Task] = []
    level = [task]
    for _ in range(DEPTH_MAX):
        wanted = {(each.tube, each.id): None for one in level for each in one.message.waits_for}
        new = [key for key in wanted if key not in known]
        if not new:
            return found, True
        room = TASKS_MAX - len(found)
        known.update(new)
        read = await asyncio.gather(
            *(_read(client, tube, task_id, timeout_seconds) for tube, task_id in new[:room])
        )
        level = [one for one in read if one is not None]
        found += level
        if len(new) > room:
            return found, False
    return found, not any(one.message.waits_for for one in level)


async def _read(
    client: AsyncClient, tube: str, task_id: int, timeout_seconds: float
) -> Task | None:
    """Return a task without its payload; None: there is no such task for this caller."""
    try:
        return await client.tube(tube).peek(task_id, payload=False, timeout=timeout_seconds)
    except (errors.TaskNotFound, errors.TubeNotFound, errors.NotAllowed):
        return None
