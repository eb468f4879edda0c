"""The cluster of a kit as a real node: real time, real connections, durable tasks."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import grpc.aio

from taskraft import _network
from taskraft._async_client import AsyncClient
from taskraft._network import Network
from taskraft._node_pool import open_channel
from taskraft.testing._backend import cancel_all
from taskraft.testing._memory_network import KitLoop
from taskraft.testing._sent_tasks import SentTasks
from taskraft.testing.errors import not_in_real

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from taskraft._heartbeats import BlockingUnaryMethod, HeartbeatSource
    from taskraft._network import Heartbeats
    from taskraft.testing._worker_run import WorkerRun
    from taskraft.testing.real_cluster import RealCluster

Request = TypeVar("Request")
Response = TypeVar("Response")
Result = TypeVar("Result")

ADVANCE_SECONDS_MAX: Final = 5.0
"""Maximum time that the clock can be advanced, in seconds of real time."""
QUIET_SECONDS: Final = 0.2
"""Time without a change after which the cluster counts as idle, in seconds."""
BUSY_SECONDS: Final = 1.0
"""Time without a change after which the cluster counts as idle while a handler runs or a task is
READY, in seconds. The time is longer than `QUIET_SECONDS`, because the next change may take longer.
"""
POLL_SECONDS: Final = 0.02
"""Time between two looks at the cluster, in seconds."""


class RealTime:
    """The real clock of an event loop; satisfies `KitTime`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: Final = loop

    def time(self) -> float:
        """Return the time of the loop in seconds."""
        return self.loop.time()

    def limit_real_time(self) -> None:
        """Do nothing: calls have their own timeouts."""

    def waited_for(
        self, coroutine: Coroutine[object, object, Result]
    ) -> Coroutine[object, object, Result]:
        """Return the coroutine unchanged."""
        return coroutine


class _Recorder(grpc.aio.UnaryUnaryClientInterceptor):
    """Records the tasks that clients put."""

    def __init__(self, sent: SentTasks) -> None:
        self._sent = sent

    async def intercept_unary_unary(
        self,
        continuation: Callable[..., Any],
        client_call_details: Any,  # noqa: ANN401 - typed wrongly: the method is bytes
        request: Any,  # noqa: ANN401 - messages of any method
    ) -> Any:  # noqa: ANN401 - the call
        """Record an accepted call."""
        call = await continuation(client_call_details, request)
        name = client_call_details.method.decode()
        if name in self._sent.METHODS:
            answer = await call
            self._sent.accepted(name, request.SerializeToString(), answer.SerializeToString())
        return call


class RealNetwork(Network):
    """Connections to a real node that can be cut without an orderly close by the client."""

    def __init__(self, time: RealTime, target: str, sent: SentTasks) -> None:
        self._time = time
        self._target = target
        self._recorder = _Recorder(sent)
        self._channels: list[grpc.aio.Channel] = []
        self._heartbeats: list[Heartbeats] = []
        self._closing: list[asyncio.Task[None]] = []
        self.is_dead = False

    def open_channel(
        self, address: str, credentials: grpc.ChannelCredentials | None, number: int
    ) -> grpc.aio.Channel:
        """Return a channel to the node, whatever the address and the credentials."""
        del address, credentials
        if self.is_dead:
            raise asyncio.CancelledError
        channel = open_channel(self._target, None, number, (self._recorder,))
        self._channels.append(channel)
        return channel

    def heartbeats(
        self,
        name: str,
        source: HeartbeatSource[Request, Response],
        method: Callable[[grpc.Channel], BlockingUnaryMethod[Request, Response]],
        addresses: Sequence[str],
        credentials: grpc.ChannelCredentials | None,
    ) -> Heartbeats:
        """Return the thread that sends the heartbeats to the node."""
        del addresses, credentials
        found = super().heartbeats(name, source, method, (self._target,), None)
        self._heartbeats.append(found)
        return found

    def client_loop(self) -> KitLoop:
        """Return the loop of the kit, which runs in the thread of the caller."""
        return KitLoop(self._time)

    def run_on(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[object, object, Result]
    ) -> Result:
        """Run a coroutine on the loop of the kit, also from the thread of the test."""
        del loop
        return KitLoop(self._time).run(coroutine)

    def kill(self) -> None:
        """Break all connections of the clients; their sessions stay open until they expire."""
        self.is_dead = True
        for each in self._heartbeats:
            each.close()
        self._closing += [
            self._time.loop.create_task(channel.close(None)) for channel in self._channels
        ]
        self._channels.clear()

    async def ended(self) -> None:
        """Wait until the channels of `kill` are closed."""
        await asyncio.gather(*self._closing)


class RealBackend:
    """A node of `taskraft dev`, emptied for each test; satisfies `Backend`."""

    def __init__(self, cluster: RealCluster, *, auto_create_tubes: bool) -> None:
        self.start: Final = datetime.now(UTC)
        self.sent: Final = SentTasks()
        self._cluster = cluster
        self._auto_create_tubes = auto_create_tubes
        self._networks: list[RealNetwork] = []

    async def open(self) -> None:
        """Remove all tubes and schedules, and let new clients connect to the node."""
        self._others = asyncio.all_tasks()
        self.time = RealTime(asyncio.get_running_loop())
        _, self._client = self.connect("kit")
        for schedule in await self._client.schedules.list():
            await self._client.schedules.delete(schedule.name)
        for tube in await self._client.list_tubes():
            await self._client.drop_tube(tube.name, force=True)
        await self._client.configure(auto_create_tubes=self._auto_create_tubes)
        self._using = _network.using(self._networks[0])
        self._using.__enter__()

    async def close(self) -> None:
        """Close the clients; the node keeps running."""
        self._using.__exit__(None, None, None)
        for network in self._networks:
            network.kill()
        for network in self._networks:
            await network.ended()
        await cancel_all(self._others, POLL_SECONDS)

    def connect(self, name: str) -> tuple[RealNetwork, AsyncClient]:
        """Return a client with connections of its own."""
        network = RealNetwork(self.time, self._cluster.target, self.sent)
        self._networks.append(network)
        with _network.using(network):
            return network, AsyncClient(self._cluster.target, name=name)

    async def run_until(self, until: float, worker: WorkerRun | None) -> None:
        """Wait in real time, and until the cluster is idle.

        Raises:
            NotInReal: the time is more than `ADVANCE_SECONDS_MAX` away.
        """
        left = until - self.time.time()
        if left > ADVANCE_SECONDS_MAX:
            raise not_in_real(f"advancing the clock by {round(left)} s")
        if left > 0:
            await asyncio.sleep(left)
        await self._idle(worker)

    async def _idle(self, worker: WorkerRun | None) -> None:
        """Wait until the counts of the tubes and the worker are stable for `QUIET_SECONDS`."""
        before, since = "", self.time.time()
        while True:
            statistics = await self._client.stats()
            counts = [(one.tube, one.tasks, one.calls) for one in statistics.tubes]
            seen = f"{counts} {worker and (worker.attempts, worker.running)}"
            now = self.time.time()
            if seen != before:
                before, since = seen, now
            ready = statistics.total.tasks.ready
            is_busy = worker is not None and (worker.is_busy or ready > 0)
            if now - since >= (BUSY_SECONDS if is_busy else QUIET_SECONDS):
                return
            await asyncio.sleep(POLL_SECONDS)

    async def next_due(self, end: float) -> float | None:
        """Return the time of the next poll of the cluster; None after `end`."""
        now = self.time.time()
        return None if now >= end else min(now + POLL_SECONDS, end)

    async def keep_house(self) -> None:
        """Do nothing, because the real leader does its periodic work itself."""

    async def change_leader(self, pause: float) -> None:
        """Stop the node, and start it again after the pause, with its data."""
        await asyncio.to_thread(self._cluster.restart, pause)

    @contextmanager
    def threads_ignored(self) -> Iterator[None]:
        """Do nothing, because the real clock never stands still."""
        yield

    def cut(self) -> NoReturn:
        """Raise an error, because the test kit cannot cut the network of a real cluster."""
        raise not_in_real("cutting the network")

    def restore(self) -> None:
        """Do nothing, because nothing was cut."""

    def lose_answers(self, *, is_lossy: bool) -> None:
        """Raise an error if ``is_lossy``, because the kit cannot drop answers of real nodes."""
        if is_lossy:
            raise not_in_real("losing answers")
