"""Define the cluster that a kit uses: one in the memory of the test, or a real node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextlib import AbstractContextManager
    from datetime import datetime

    from taskraft import AsyncClient
    from taskraft.testing._sent_tasks import SentTasks
    from taskraft.testing._worker_run import WorkerRun

Result = TypeVar("Result")


class KitTime(Protocol):
    """The clock of an event loop, virtual or real."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Event loop whose clock this is."""
        ...

    def time(self) -> float:
        """Return the time in seconds."""
        ...

    def limit_real_time(self) -> None:
        """Limit the real time of the call that starts now."""
        ...

    def waited_for(
        self, coroutine: Coroutine[object, object, Result]
    ) -> Coroutine[object, object, Result]:
        """Return a coroutine for which the current thread will wait."""
        ...


class Killable(Protocol):
    """The connections of one process of the code under test."""

    def kill(self) -> None:
        """End the connections as the death of the process does."""
        ...


class Backend(Protocol):
    """The cluster of a kit.

    A method raises `NotInReal` if only a cluster in memory supports the operation.
    """

    @property
    def sent(self) -> SentTasks:
        """The tasks that clients have put."""
        ...

    @property
    def start(self) -> datetime:
        """Time of day at the beginning."""
        ...

    @property
    def time(self) -> KitTime:
        """Clock of the cluster."""
        ...

    async def open(self) -> None:
        """Start the cluster, and let new clients connect to it."""
        ...

    async def close(self) -> None:
        """End the cluster and everything that runs on it."""
        ...

    def connect(self, name: str) -> tuple[Killable, AsyncClient]:
        """Return a client with connections of its own."""
        ...

    async def run_until(self, until: float, worker: WorkerRun | None) -> None:
        """Run all other coroutines until they are idle and the clock has reached `until`."""
        ...

    async def next_due(self, end: float) -> float | None:
        """Return the time of the next event; None: there is no event before `end`."""
        ...

    async def keep_house(self) -> None:
        """Do the periodic work of a leader."""
        ...

    async def change_leader(self, pause: float) -> None:
        """Lose the leader, and elect the next one after a pause in seconds."""
        ...

    def threads_ignored(self) -> AbstractContextManager[None]:
        """Let the clock move in this block although threads and processes work."""
        ...

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        ...

    def restore(self) -> None:
        """Let clients connect again."""
        ...

    def lose_answers(self, *, is_lossy: bool) -> None:
        """Execute calls and lose their answers, or stop doing so."""
        ...


CANCELLATIONS_MAX = 1_000
"""Maximum number of cancellations of each coroutine at the end of a test."""


async def cancel_all(kept: set[asyncio.Task[object]], pause_seconds: float = 0) -> None:
    """Cancel all coroutines except `kept`; cancel a coroutine again while it still runs.

    Raises:
        RuntimeError: a coroutine ignores its cancellations.
    """
    left: set[asyncio.Task[object]] = set()
    for _ in range(CANCELLATIONS_MAX):
        left = asyncio.all_tasks() - kept - {asyncio.current_task()}
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.sleep(pause_seconds)
    raise RuntimeError(f"these coroutines ignore their cancellation: {left}")
