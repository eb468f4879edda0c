"""Put into and take from one tube, from threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from taskraft._async_tube import AsyncTube, TakeOptions
from taskraft._sync_chosen import ChosenTasks
from taskraft._sync_taken import TakenTask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from taskraft._durations import Duration
    from taskraft._payload import Payload
    from taskraft._planned import PlannedTask
    from taskraft._portal import Portal
    from taskraft._spec import PutOptions
    from taskraft._task import Task
    from taskraft.v1 import tube_service_pb2


class Tube(ChosenTasks):
    """A handle of one tube; making one does not ask the server. Threads may share it."""

    def __init__(self, tube: AsyncTube, portal: Portal) -> None:
        super().__init__(tube, portal)
        self._tube = tube

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

    def put_and_wait(
        self,
        payload: Payload,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
        **options: Unpack[PutOptions],
    ) -> Task:
        """Put a task and wait until it has ended; see `AsyncTube.put_and_wait`."""
        return self._portal.run(
            self._tube.put_and_wait(payload, wait=wait, timeout=timeout, **options)
        )

    def task(self, payload: Payload, **options: Unpack[PutOptions]) -> PlannedTask:
        """Return a task for this tube that is not put yet: for schedules, groups and batches."""
        return self._tube.task(payload, **options)

    def release_all(self, *, timeout: Duration | None = None) -> int:
        """Release all taken tasks, whoever holds them; return how many."""
        return self._portal.run(self._tube.release_all(timeout=timeout))

    def stats(self, *, timeout: Duration | None = None) -> tube_service_pb2.TubeStatistics:
        """Return how many tasks are in each state, and how many calls there were."""
        return self._portal.run(self._tube.stats(timeout=timeout))
