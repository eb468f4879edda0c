"""Group buried or retried tasks by the cause of their failure."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from taskraft import AsyncClient, Task, TaskPage

Stage = Literal["buried", "retrying"]
"""Buried tasks, or tasks that failed and will be taken again."""
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)

TASKS_MAX: Final = 20_000
"""Maximum number of failed tasks that one report looks at."""
PAGE_SIZE: Final = 500
PAGES_MAX: Final = 60
"""Maximum number of calls of one report. A page of retried tasks can be empty, because the cluster
finds these tasks by a filter; buried tasks are listed without a scan of other tasks.
"""
RETRYING: Final = "failure:* AND (state = DELAYED OR state = READY)"
EXAMPLES_MAX: Final = 5


@dataclass(slots=True)
class FailureGroup:
    """Failed tasks of one stage that failed for the same cause."""

    fingerprint: str
    """Fingerprint of the failures, as the server and `taskraft failures` show it."""
    type: str
    """Class of the failure, for example the name of an exception."""
    text: str
    """Text of one of the failures; numbers and ids differ in the others."""
    count: int = 0
    first_ms: int = 0
    """Time since when the first task is in its state, in ms since the Unix epoch."""
    last_ms: int = 0
    tubes: Counter[str] = field(default_factory=Counter)
    task_types: Counter[str] = field(default_factory=Counter)
    examples: list[Task] = field(default_factory=list)

    def add(self, task: Task) -> None:
        """Count one task of this group."""
        since_ms = task.message.since_ms
        self.count += 1
        self.first_ms = min(self.first_ms or since_ms, since_ms)
        self.last_ms = max(self.last_ms, since_ms)
        self.tubes[task.tube] += 1
        self.task_types[task.message.spec.type] += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(task)


@dataclass(frozen=True, slots=True)
class FailureReport:
    """The causes of all failed tasks of one stage, the most frequent first."""

    groups: tuple[FailureGroup, ...]
    looked_at: int
    is_complete: bool
    """True: the report covers all tasks of the stage. False: the report stopped at ``TASKS_MAX``
    tasks or ``PAGES_MAX`` calls.
    """
    now_ms: int

    def named(self, fingerprint: str) -> FailureGroup | None:
        """Return the group with a fingerprint, or None."""
        return next((each for each in self.groups if each.fingerprint == fingerprint), None)


def cause_of(task: Task) -> str:
    """Return the fingerprint of the failure of a task."""
    return str(task.message.failure.fingerprint)


async def failed_tasks(
    client: AsyncClient, tube: str, stage: Stage, timeout_seconds: float
) -> AsyncIterator[TaskPage]:
    """Yield the failed tasks of a tube page by page."""
    token = ""
    while True:
        page = await client.tube(tube).page(
            RETRYING if stage == "retrying" else "",
            order_by="" if stage == "retrying" else "kicking",
            size=PAGE_SIZE,
            token=token,
            payload=False,
            timeout=timeout_seconds,
        )
        yield page
        token = page.next_token
        if not token:
            return
        await asyncio.sleep(0)


async def report_failures(
    client: AsyncClient, tubes: Sequence[str], stage: Stage, timeout_seconds: float
) -> FailureReport:
    """Return the causes of the failed tasks of some tubes."""
    groups: dict[str, FailureGroup] = {}
    looked_at = now_ms = pages = 0
    for tube in tubes:
        async for page in failed_tasks(client, tube, stage, timeout_seconds):
            now_ms = page.now_ms
            for task in page.tasks:
                name, failure = cause_of(task), task.message.failure
                group = groups.get(name)
                if group is None:
                    group = groups[name] = FailureGroup(name, failure.type, failure.message)
                group.add(task)
            looked_at += len(page.tasks)
            pages += 1
            if looked_at >= TASKS_MAX or pages >= PAGES_MAX:
                return FailureReport(_ordered(groups), looked_at, is_complete=False, now_ms=now_ms)
    return FailureReport(_ordered(groups), looked_at, is_complete=True, now_ms=now_ms)


def _ordered(groups: dict[str, FailureGroup]) -> tuple[FailureGroup, ...]:
    return tuple(sorted(groups.values(), key=lambda group: (-group.count, group.fingerprint)))
