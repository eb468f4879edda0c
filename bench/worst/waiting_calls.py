"""Keep calls waiting at a node, and let events wake them.

The waiting calls are takes from all tubes, streams with leases, waits for outcomes, readers of the
change feed, and puts into a full tube.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import grpc.aio

from bench.worst.stage import LEASE_MS, Stage
from taskraft.v1 import feed_service_pb2 as feed_pb
from taskraft.v1 import session_service_pb2 as session_pb
from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as task_pb
from taskraft.v1 import tube_service_pb2 as tube_pb
from taskraft_service.limits import SELECTOR_IDS_MAX, WAIT_MAX_MS

PAUSE_SECONDS: Final = 1.0
"""Default pause of a woken call before it waits again, so that the client leaves the cores to the
nodes."""
PER_WAKE: Final = 10
"""Number of puts that get room, and of streams that are resumed, with each wake."""
FULL: Final = "full"
"""A tube that is full."""
HELD: Final = "held"
"""The tube whose tasks the streams hold."""
TICKS: Final = "ticks"
"""The tube with the tasks on whose end the calls wait."""
TYPES_OF_NONE: Final = ("no task has this type",)
"""The types of the waiting takes, which therefore take no task of others."""
Stream: TypeAlias = "grpc.aio.StreamStreamCall[task_pb.SubscribeRequest, Any]"


@dataclass(frozen=True)
class Counts:
    """Numbers of waiting calls of each kind."""

    takes: int
    """Takes of one type from all tubes."""
    streams: int
    """Streams whose session holds one lease."""
    outcomes: int
    """Calls that each wait for the outcomes of 1 000 tasks."""
    watches: int
    """Readers that wait for any change."""
    puts: int
    """Puts that wait for room in a tube."""

    @property
    def calls(self) -> int:
        """Number of all waiting calls without the streams."""
        return self.takes + self.outcomes + self.watches + self.puts

    def __str__(self) -> str:
        """Return the numbers as text."""
        return (
            f"{self.takes} takes of * with types, {self.streams} streams with leases,"
            f" {self.outcomes} waits for the outcomes of {SELECTOR_IDS_MAX} tasks each,"
            f" {self.watches} WatchFeed calls, {self.puts} puts that wait for capacity"
        )


class WaitingCalls:
    """The waiting calls of one client.

    Args:
        stage: the node.
        counts: numbers of the calls.
        pause_seconds: pause of a woken call before it waits again; 0: it waits again at once.
    """

    def __init__(self, stage: Stage, counts: Counts, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._stage, self._counts, self._pause_seconds = stage, counts, pause_seconds
        self._calls: list[asyncio.Task[None]] = []
        self._streams: deque[tuple[str, Stream]] = deque()
        self._full_ids: deque[int] = deque()
        self._tick_ids: deque[int] = deque()

    async def begin(self) -> None:
        """Start the calls, and wait until the streams hold their leases."""
        stage, counts = self._stage, self._counts
        await stage.create_tube(HELD)
        await stage.create_tube(TICKS)
        full = tube_pb.Tube(
            name=FULL,
            kind=tube_pb.Tube.LIMFIFOTTL,
            options=tube_pb.TubeOptions(capacity_tasks=counts.puts),
        )
        await stage.tubes.CreateTube(tube_pb.CreateTubeRequest(tube=full))
        self._full_ids.extend(await stage.put(FULL, counts.puts))
        self._tick_ids.extend(await stage.put(TICKS, SELECTOR_IDS_MAX))
        await stage.put(HELD, counts.streams)
        for _ in range(counts.streams):
            opening = session_pb.OpenSessionRequest(ttr_ms=LEASE_MS)
            session_id = (await stage.sessions.OpenSession(opening)).session.session_id
            self._streams.append((session_id, await self._opened(session_id, credit=1)))
        for number, call in (
            (counts.takes, self._take),
            (counts.outcomes, self._wait_for_outcomes),
            (counts.watches, self._watch),
            (counts.puts, self._put),
        ):
            self._calls += [asyncio.ensure_future(self._again(call)) for _ in range(number)]
        await asyncio.sleep(0)

    async def wake(self) -> None:
        """Cause one event for each kind of call.

        A task becomes ready, and one of the tasks ends on which all calls for outcomes wait. Tasks
        of the full tube end, and some streams break and are resumed with their leases.
        """
        ended = self._tick_ids.popleft()
        self._tick_ids.extend(await self._stage.put(TICKS, 1))
        await self._delete(TICKS, [ended])
        number = min(PER_WAKE, len(self._full_ids))
        await self._delete(FULL, [self._full_ids.popleft() for _ in range(number)])
        for _ in range(min(PER_WAKE, len(self._streams))):
            session_id, stream = self._streams.popleft()
            stream.cancel()
            self._streams.append((session_id, await self._opened(session_id)))

    async def go_on(self) -> None:
        """Wake the calls again and again."""
        while True:
            await self.wake()
            await asyncio.sleep(PAUSE_SECONDS)

    def waiting(self) -> int:
        """Return the number of calls that have not failed, without the streams."""
        return sum(not call.done() for call in self._calls)

    async def end(self) -> None:
        """End all calls.

        Raises:
            BaseException: the first error of a call that failed.
        """
        for _, stream in self._streams:
            stream.cancel()
        for call in self._calls:
            call.cancel()
        ended = await asyncio.gather(*self._calls, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error

    async def _opened(self, session_id: str, credit: int = 0) -> Stream:
        """Open a stream on a session, and wait until the session has its lease."""
        stream = self._stage.tasks.Subscribe()
        opening = task_pb.SubscribeRequest.Open(
            sources=[task_pb.TakeSource(tube=HELD)], session_id=session_id, ttr_ms=LEASE_MS
        )
        request = task_pb.SubscribeRequest(open=opening)
        if credit:
            request.credit.tasks = credit
        await stream.write(request)
        await stream.read()  # Opened, with the leases of a resumed session
        if credit:
            await stream.read()
        return stream

    async def _delete(self, tube: str, ids: list[int]) -> None:
        selector = task_pb2.TaskSelector(ids=ids)
        request = task_pb.DeleteTasksRequest(tube=tube, selector=selector)
        await self._stage.tasks.DeleteTasks(request)

    async def _take(self) -> None:
        request = task_pb.TakeTasksRequest(
            sources=[task_pb.TakeSource(tube="*")],
            types=TYPES_OF_NONE,
            wait_ms=WAIT_MAX_MS,
        )
        await self._stage.tasks.TakeTasks(request)

    async def _wait_for_outcomes(self) -> None:
        request = task_pb.WaitTasksRequest(tube=TICKS, wait_ms=WAIT_MAX_MS)
        request.selector.ids.extend(self._tick_ids)
        await self._stage.tasks.WaitTasks(request)

    async def _watch(self) -> None:
        feed = self._stage.feed
        described = await feed.DescribeFeed(feed_pb.DescribeFeedRequest())
        cursor = feed_pb.FeedCursor(
            feed_id=described.feed_id,
            next_seq={one.partition: one.high_seq for one in described.partitions},
        )
        await feed.WatchFeed(feed_pb.WatchFeedRequest(cursor=cursor, wait_ms=WAIT_MAX_MS))

    async def _put(self) -> None:
        request = task_pb.PutTasksRequest(
            tube=FULL, tasks=[task_pb2.TaskSpec(payload=b"x")], room_wait_ms=WAIT_MAX_MS
        )
        response = await self._stage.tasks.PutTasks(request)
        self._full_ids.extend(one for one in response.task_ids if one)

    async def _again(self, call: Callable[[], Awaitable[None]]) -> None:
        """Make a call again and again, with a pause after each answer."""
        while True:
            await call()
            await asyncio.sleep(self._pause_seconds)
