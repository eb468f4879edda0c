"""Look at, wait for, and change chosen tasks of one tube, from threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, Unpack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from taskraft._async_chosen import AsyncChosenTasks, Cancelled, State
    from taskraft._choosing import Chosen, Key, Named, TaskChanges
    from taskraft._durations import Duration
    from taskraft._portal import Portal
    from taskraft._settlement import Reason
    from taskraft._task import Task

Item = TypeVar("Item")


class ChosenTasks:
    """The part of a tube's handle that is about chosen tasks; see `AsyncChosenTasks`."""

    def __init__(self, tasks: AsyncChosenTasks, portal: Portal) -> None:
        self.name: Final = tasks.name
        self._tasks = tasks
        self._portal = portal

    def peek(
        self, task_id: int | None = None, *, key: Key = (), timeout: Duration | None = None
    ) -> Task:
        """Return a task, by id or unique key, without changing it.

        Raises:
            TaskNotFound: There is none, or not any more.
        """
        return self._portal.run(self._tasks.peek(task_id, key=key, timeout=timeout))

    def wait(
        self,
        tasks: Named,
        *,
        wait: Duration | None = None,
        any: bool = False,
        progress: bool = False,
        timeout: Duration | None = None,
    ) -> list[Task]:
        """Wait until tasks have ended, and return them; see `AsyncTube.wait`."""
        return self._portal.run(
            self._tasks.wait(tasks, wait=wait, any=any, progress=progress, timeout=timeout)
        )

    def kick(
        self,
        count: int = 1,
        *,
        ids: Chosen | None = None,
        delay: Duration = 0,
        timeout: Duration | None = None,
    ) -> int:
        """Make buried tasks ready again and return how many: the first `count`, or chosen ones."""
        return self._portal.run(self._tasks.kick(count, ids=ids, delay=delay, timeout=timeout))

    def bury(self, tasks: Chosen, *, reason: Reason = "", timeout: Duration | None = None) -> int:
        """Take tasks that nobody holds out of circulation; return how many."""
        return self._portal.run(self._tasks.bury(tasks, reason=reason, timeout=timeout))

    def delete(self, tasks: Chosen, *, timeout: Duration | None = None) -> int:
        """Remove tasks in any state and return how many."""
        return self._portal.run(self._tasks.delete(tasks, timeout=timeout))

    def update(
        self, tasks: Chosen, *, timeout: Duration | None = None, **changes: Unpack[TaskChanges]
    ) -> int:
        """Change held, ready, delayed or buried tasks and return how many; see `TaskChanges`."""
        return self._portal.run(self._tasks.update(tasks, timeout=timeout, **changes))

    def snatch(self, tasks: Chosen, *, delay: Duration = 0, timeout: Duration | None = None) -> int:
        """Take tasks from their holders, whose leases become stale; return how many."""
        return self._portal.run(self._tasks.snatch(tasks, delay=delay, timeout=timeout))

    def restart(
        self, tasks: Chosen, *, delay: Duration = 0, timeout: Duration | None = None
    ) -> int:
        """Begin delayed, buried and finished tasks anew, attempts reset; return how many."""
        return self._portal.run(self._tasks.restart(tasks, delay=delay, timeout=timeout))

    def switch(
        self,
        tasks: Chosen,
        state: State,
        *,
        duration: Duration = 0,
        timeout: Duration | None = None,
    ) -> int:
        """Move tasks that nobody holds to a state; see `AsyncTube.switch`."""
        return self._portal.run(
            self._tasks.switch(tasks, state, duration=duration, timeout=timeout)
        )

    def cancel(self, tasks: Chosen, *, timeout: Duration | None = None) -> Cancelled:
        """Ask the holders of tasks to stop, and remove those that nobody holds."""
        return self._portal.run(self._tasks.cancel(tasks, timeout=timeout))

    def list(
        self,
        filter: str = "",
        *,
        order_by: str = "",
        timeout: Duration | None = None,
    ) -> Iterator[Task]:
        """Yield the tasks that a filter chooses, page by page, as they were at the first page."""
        yield from iterate(
            self._portal, self._tasks.list(filter, order_by=order_by, timeout=timeout)
        )


def iterate(portal: Portal, items: AsyncIterator[Item]) -> Iterator[Item]:
    """Yield from an asynchronous iterator."""

    async def next_item() -> tuple[Item] | None:
        async for item in items:
            return (item,)
        return None

    while found := portal.run(next_item()):
        yield found[0]
