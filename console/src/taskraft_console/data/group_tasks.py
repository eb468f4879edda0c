"""Find the tasks of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft import errors

if TYPE_CHECKING:
    from taskraft import AsyncClient, Task

TASKS_MAX: Final = 500
"""Maximum number of tasks of one answer."""
CALLS_MAX: Final = 30
"""Maximum number of calls for one answer. Each call looks at up to 100 000 tasks of a tube."""


@dataclass(frozen=True, slots=True)
class GroupTasks:
    """Tasks of a group."""

    tasks: tuple[Task, ...]
    tubes: int
    """Number of tubes that were searched completely."""
    is_complete: bool
    """False: the search stopped at ``TASKS_MAX`` tasks or ``CALLS_MAX`` calls."""


def text_filter(field: str, text: str) -> str:
    """Return the filter that finds the tasks whose field has exactly this text."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("*", "\\*")
    return f'{field} = "{quoted}"'


async def find_group_tasks(
    client: AsyncClient, name: str, tubes: Sequence[str], timeout_seconds: float
) -> GroupTasks:
    """Return the tasks of a group that are in some tubes."""
    found: list[Task] = []
    calls = 0
    for searched, tube in enumerate(tubes):
        token = ""
        while True:
            if calls == CALLS_MAX or len(found) >= TASKS_MAX:
                return GroupTasks(tuple(found[:TASKS_MAX]), searched, is_complete=False)
            calls += 1
            try:
                page = await client.tube(tube).page(
                    text_filter("group", name),
                    size=250,
                    token=token,
                    payload=False,
                    timeout=timeout_seconds,
                )
            except errors.TubeNotFound:
                break  # the tube was dropped after the tubes were listed
            found += page.tasks
            token = page.next_token
            if not token:
                break
    return GroupTasks(tuple(found[:TASKS_MAX]), len(tubes), len(found) <= TASKS_MAX)
