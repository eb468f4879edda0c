"""Connect clients to a node in the memory of the test, in one event loop and one thread."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc
import grpc.aio

from taskraft._heartbeats import NEVER
from taskraft._network import Network
from taskraft.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from taskraft._heartbeats import BlockingUnaryMethod, HeartbeatSource
    from taskraft._network import ClientLoop, Heartbeats
    from taskraft.testing._backend import KitTime
    from taskraft.testing._virtual_time import VirtualTime
    from taskraft_service.memory_node.direct_calls import DirectChannel

DRIVER_CHECK_SECONDS: Final = 0.01
"""Interval in which a waiting thread checks whether another thread still runs the loop."""

Request = TypeVar("Request")
Response = TypeVar("Response")
Result = TypeVar("Result")


class MemoryNetwork(Network):
    """The network between some clients and the node.

    Args:
        time: the clock of the node and of all clients.
        connect: returns a new channel to the node.
    """

    is_watched = False

    def __init__(self, time: VirtualTime, connect: Callable[[], DirectChannel]) -> None:
        self._time = time
        self._connect = connect
        self._channels: list[DirectChannel] = []
        self._heartbeats: list[MemoryHeartbeats] = []
        self._is_cut = False
        self._loses_answers = False
        self.is_dead = False

    def open_channel(
        self, address: str, credentials: grpc.ChannelCredentials | None, number: int
    ) -> grpc.aio.Channel:
        """Return a channel to the node, whatever the address and the credentials."""
        del address, credentials, number
        channel = self._connect()
        channel.is_cut, channel.loses_answers = self._is_cut, self._loses_answers
        channel.is_dead = self.is_dead
        self._channels.append(channel)
        return channel  # type: ignore[return-value]  # has what the client uses

    def heartbeats(
        self,
        name: str,
        source: HeartbeatSource[Request, Response],
        method: Callable[[grpc.Channel], BlockingUnaryMethod[Request, Response]],
        addresses: Sequence[str],
        credentials: grpc.ChannelCredentials | None,
    ) -> Heartbeats:
        """Return heartbeats sent from timers of the loop; a thread has no virtual time."""
        del name, addresses, credentials
        found = MemoryHeartbeats(self._time.loop, source, method, self)
        self._heartbeats.append(found)
        return found

    def client_loop(self) -> ClientLoop:
        """Return the loop of the kit, which runs in the thread of the caller."""
        return KitLoop(self._time)

    def client_connected(self) -> None:
        """Do nothing, because a fork harms no connection in memory."""

    def client_disconnected(self) -> None:
        """Do nothing; see `client_connected`."""

    def run_on(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[object, object, Result]
    ) -> Result:
        """Run a coroutine on the loop of the kit, also from the thread of the test."""
        del loop
        return KitLoop(self._time).run(coroutine)

    # ------------------------------------------------------------------------------ faults

    def cut(self) -> None:
        """Break all connections, and refuse new ones until `restore`."""
        self._is_cut = True
        for channel in self._channels:
            channel.cut()

    def restore(self) -> None:
        """Let clients connect again."""
        self._is_cut = False
        for channel in self._channels:
            channel.restore()

    def lose_answers(self, *, is_lossy: bool) -> None:
        """Execute calls but lose their answers if ``is_lossy``; otherwise answer again."""
        self._loses_answers = is_lossy
        for channel in self._channels:
            channel.loses_answers = is_lossy

    def kill(self) -> None:
        """Cancel the calls of all clients; the node sees broken connections."""
        self.is_dead = True
        for channel in self._channels:
            channel.die()
        for each in self._heartbeats:
            each.close()


class MemoryHeartbeats:
    """Sends the heartbeats of one source from timers of the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: HeartbeatSource[Any, Any],
        method: Callable[[grpc.Channel], Any],
        network: MemoryNetwork,
    ) -> None:
        self._loop = loop
        self._source = source
        self._method = method
        self._network = network
        self._call: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False

    def wake(self) -> None:
        """Ask the source again when the next heartbeat is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_closed or self._sending is not None:
            return
        due = self._source.due()
        if due != NEVER:
            self._timer = self._loop.call_at(due, self.send)

    def stop(self) -> None:
        """Send no more heartbeats; a timer that is set finds nothing to send."""
        self._is_closed = True

    def close(self) -> None:
        """Send no more heartbeats, and cancel the heartbeat in flight."""
        self.stop()
        self.wake()
        if self._sending is not None:
            self._sending.cancel()

    def send(self) -> None:
        """Send a heartbeat now; a timer of the loop calls this method."""
        self._sending = self._loop.create_task(self._send())
        self._sending.add_done_callback(self._sent)

    async def _send(self) -> None:
        request = None if self._is_closed else self._source.request()
        if request is None:
            return
        if self._call is None:
            self._call = self._method(self._network.open_channel("", None, 0))  # type: ignore[arg-type]  # the stub accepts it
        try:
            response = await self._call(request, timeout=self._source.allowed_seconds())
        except grpc.aio.AioRpcError:
            self._source.unanswered(request)
        else:
            self._source.answered(request, response)

    def _sent(self, sending: asyncio.Task[None]) -> None:
        self._sending = None
        if not sending.cancelled():
            sending.result()
        self.wake()


class KitLoop:
    """Runs the coroutines of blocking clients on the loop of the kit; satisfies `ClientLoop`.

    The loop runs in the thread that calls. While the loop runs in another thread, the call waits
    for that thread.
    """

    _driving: Final = threading.RLock()

    def __init__(self, time: KitTime) -> None:
        self._time = time
        self._loop: asyncio.AbstractEventLoop = time.loop
        self._is_closed = False

    @property
    def is_used(self) -> bool:
        """True until the client or the kit is closed."""
        return not self._is_closed and not self._loop.is_closed()

    @property
    def is_current(self) -> bool:
        """True if the caller is a coroutine or a callback of the loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def run(
        self, coroutine: Coroutine[object, object, Result], timeout_seconds: float | None = None
    ) -> Result:
        """Run a coroutine and return its result; `timeout_seconds` is ignored."""
        del timeout_seconds
        if not self.is_used or self.is_current:
            coroutine.close()
            if self.is_current:
                raise RuntimeError(
                    "this call would block the event loop of the test kit; use the asyncio client "
                    "in coroutines, and build a list before put_many"
                )
            raise ClientClosed("the client is closed")
        if self._loop.is_running():
            counted = self._time.waited_for(coroutine)
            return self._result_of(asyncio.run_coroutine_threadsafe(counted, self._loop))
        with self._driving:
            return drive(self._time, coroutine)

    def _result_of(self, future: Future[Result]) -> Result:
        """Return the result of a coroutine that another thread runs on the loop.

        The other thread may stop the loop at the end of its own call. This thread then runs the
        loop. A loop whose coroutine is the test does not stop before the end of the test.

        Raises:
            ClientClosed: the kit was closed during the call.
        """
        while not wait((future,), DRIVER_CHECK_SECONDS).done:
            if not self.is_used:
                raise ClientClosed("the client is closed")
            if not self._loop.is_running() and self._driving.acquire(blocking=False):
                try:
                    return drive(self._time, _result(future))
                finally:
                    self._driving.release()
        return future.result()

    def close(self, timeout_seconds: float | None = None) -> None:
        """Refuse further calls of this client; the kit closes the loop itself."""
        del timeout_seconds
        self._is_closed = True


async def _result(future: Future[Result]) -> Result:
    """Return the result of another coroutine of the loop."""
    return await asyncio.wrap_future(future)


def drive(time: KitTime, coroutine: Coroutine[object, object, Result]) -> Result:
    """Run a coroutine on the loop in this thread.

    Raises:
        ClockStuck: the coroutine waits for something that does not happen, or takes too long.
    """
    time.limit_real_time()
    loop: asyncio.AbstractEventLoop = time.loop
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            task.cancel()
            loop.run_until_complete(asyncio.wait((task,), timeout=0))
        raise
