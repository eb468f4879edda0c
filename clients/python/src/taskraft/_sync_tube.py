"""A tube for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Unpack, overload

from taskraft._async_tube import AsyncTube
from taskraft._blocking_facade import blocking, iterating
from taskraft._sync_taken_task import TakenTask
from taskraft._take import TakeOptions

if TYPE_CHECKING:
    from taskraft._blocking_portal import BlockingPortal
    from taskraft._durations import Duration
    from taskraft._payload import Payload
    from taskraft._planned_task import PlannedTask
    from taskraft._put_options import PutOptions


class Tube:
    """A handle of one tube; creating a handle does not call the server.

    Threads may share a handle. Concurrent calls of `put` from several threads are sent in one
    message. `put_many` reads its iterable in the client's own thread.
    """

    def __init__(self, tube: AsyncTube, portal: BlockingPortal) -> None:
        self.name: Final = tube.name
        self._inner = tube
        self._portal = portal

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    put = blocking(AsyncTube.put)
    put_and_read = blocking(AsyncTube.put_and_read)
    put_many = blocking(AsyncTube.put_many)
    put_atomic = blocking(AsyncTube.put_atomic)
    put_and_wait = blocking(AsyncTube.put_and_wait)

    def task(self, payload: Payload, **options: Unpack[PutOptions]) -> PlannedTask:
        """Return a task for this tube without putting it, for schedules, groups and batches."""
        return self._inner.task(payload, **options)

    @overload
    def take(
        self, *, timeout: Duration | None = None, **options: Unpack[TakeOptions]
    ) -> TakenTask: ...

    @overload
    def take(
        self,
        *,
        wait: Duration | None,
        timeout: Duration | None = None,
        **options: Unpack[TakeOptions],
    ) -> TakenTask | None: ...

    def take(
        self,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TakeOptions],
    ) -> TakenTask | None:
        """Take the next task, or return None if there was none within `wait`.

        See `AsyncTube.take`.
        """
        taken = self._portal.run(self._inner.take(wait=wait, timeout=timeout, **options))
        return None if taken is None else TakenTask(taken, self._portal)

    def take_many(
        self,
        tasks_max: int,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TakeOptions],
    ) -> list[TakenTask]:
        """Take up to `tasks_max` tasks, at most 1 000; wait only until the first task is READY."""
        taken = self._portal.run(
            self._inner.take_many(tasks_max, wait=wait, timeout=timeout, **options)
        )
        return [TakenTask(task, self._portal) for task in taken]

    peek = blocking(AsyncTube.peek)
    list = iterating(AsyncTube.list)
    page = blocking(AsyncTube.page)
    events = blocking(AsyncTube.events)
    graph = blocking(AsyncTube.graph)
    count = blocking(AsyncTube.count)
    wait = blocking(AsyncTube.wait)
    kick = blocking(AsyncTube.kick)
    bury = blocking(AsyncTube.bury)
    delete = blocking(AsyncTube.delete)
    update = blocking(AsyncTube.update)
    snatch = blocking(AsyncTube.snatch)
    restart = blocking(AsyncTube.restart)
    switch = blocking(AsyncTube.switch)
    move = blocking(AsyncTube.move)
    redrive = blocking(AsyncTube.redrive)
    cancel = blocking(AsyncTube.cancel)
    release_all = blocking(AsyncTube.release_all)
    stats = blocking(AsyncTube.stats)
