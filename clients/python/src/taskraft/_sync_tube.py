"""Put into and take from one tube, from threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, Unpack

from taskraft._async_tube import AsyncTube, Ids, TakeOptions
from taskraft._sync_taken import TakenTask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from taskraft._durations import Duration
    from taskraft._payload import Payload
    from taskraft._portal import Portal
    from taskraft._settlement import Reason
    from taskraft._spec import PutOptions
    from taskraft._task import Task
    from taskraft.v1 import tube_service_pb2


Item = TypeVar("Item")


class Tube:
    """A handle of one tube; making one does not ask the server. Threads may share it."""

    def __init__(self, tube: AsyncTube, portal: Portal) -> None:
        self.name: Final = tube.name
        self._tube = tube
        self._portal = portal

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def put(
        self, payload: Payload, *, timeout: Duration | None = None, **options: Unpack[PutOptions]
    ) -> int:
        """Put a task and return its id once it is on the disks of a majority.

        Calls of several threads are joined into one message. See `AsyncTube.put`.
        """
        return self._portal.run(self._tube.put(payload, timeout=timeout, **options))

    def put_many(
        self,
        payloads: Iterable[Payload],
        *,
        timeout: Duration | None = None,
        **options: Unpack[PutOptions],
    ) -> list[int]:
        """Put many tasks in order and return their ids; see `AsyncTube.put_many`.

        The iterable is read in the client's own thread.
        """
        return self._portal.run(self._tube.put_many(payloads, timeout=timeout, **options))

    def put_atomic(
        self,
        payloads: Iterable[Payload],
        *,
        room_wait: Duration = 0,
        timeout: Duration | None = None,
        **options: Unpack[PutOptions],
    ) -> list[int]:
        """Put tasks all or none, in one message; see `AsyncTube.put_atomic`."""
        return self._portal.run(
            self._tube.put_atomic(payloads, room_wait=room_wait, timeout=timeout, **options)
        )

    def take(
        self,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TakeOptions],
    ) -> TakenTask | None:
        """Take the next task, or None if there was none in time; see `AsyncTube.take`."""
        taken = self._portal.run(self._tube.take(wait=wait, timeout=timeout, **options))
        return None if taken is None else TakenTask(taken, self._portal)

    def take_many(
        self,
        tasks_max: int,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TakeOptions],
    ) -> list[TakenTask]:
        """Take up to `tasks_max` tasks, at most 1 000; wait only for the first."""
        taken = self._portal.run(
            self._tube.take_many(tasks_max, wait=wait, timeout=timeout, **options)
        )
        return [TakenTask(task, self._portal) for task in taken]

    def peek(self, task_id: int, *, timeout: Duration | None = None) -> Task:
        """Return a task without changing it.

        Raises:
            TaskNotFound: There is none with this id, or not any more.
        """
        return self._portal.run(self._tube.peek(task_id, timeout=timeout))

    def list(
        self,
        filter: str = "",
        *,
        order_by: str = "",
        timeout: Duration | None = None,
    ) -> Iterator[Task]:
        """Yield the tasks that a filter chooses, page by page, as they were at the first page."""
        yield from iterate(
            self._portal, self._tube.list(filter, order_by=order_by, timeout=timeout)
        )

    def kick(
        self,
        count: int = 1,
        *,
        ids: Ids | None = None,
        delay: Duration = 0,
        timeout: Duration | None = None,
    ) -> int:
        """Make buried tasks ready again and return how many: the first `count`, or chosen ones."""
        return self._portal.run(self._tube.kick(count, ids=ids, delay=delay, timeout=timeout))

    def bury(self, ids: Ids, *, reason: Reason = "", timeout: Duration | None = None) -> int:
        """Take tasks that nobody holds out of circulation; return how many."""
        return self._portal.run(self._tube.bury(ids, reason=reason, timeout=timeout))

    def delete(self, ids: Ids, *, timeout: Duration | None = None) -> int:
        """Remove tasks in any state and return how many."""
        return self._portal.run(self._tube.delete(ids, timeout=timeout))

    def stats(self, *, timeout: Duration | None = None) -> tube_service_pb2.TubeStatistics:
        """Return how many tasks are in each state, and how many calls there were."""
        return self._portal.run(self._tube.stats(timeout=timeout))


def iterate(portal: Portal, items: AsyncIterator[Item]) -> Iterator[Item]:
    """Yield from an asynchronous iterator."""

    async def next_item() -> tuple[Item] | None:
        async for item in items:
            return (item,)
        return None

    while found := portal.run(next_item()):
        yield found[0]
