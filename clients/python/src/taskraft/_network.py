"""Connect clients to nodes: over gRPC, or in the memory of a test (`taskraft.testing`).

A client uses the network that is current when the client is created.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from taskraft import _fork
from taskraft._heartbeats import HeartbeatThread
from taskraft._loop_thread import LoopThread
from taskraft._node_pool import open_channel

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    import grpc

    from taskraft._heartbeats import BlockingUnaryMethod, HeartbeatSource

Request = TypeVar("Request")
Response = TypeVar("Response")
Result = TypeVar("Result")


class ClientLoop(Protocol):
    """The event loop of a client for threads."""

    @property
    def is_used(self) -> bool:
        """True if the loop has run a coroutine and is not closed."""
        ...

    @property
    def is_current(self) -> bool:
        """True if the caller runs in the thread of the loop."""
        ...

    def run(
        self, coroutine: Coroutine[object, object, Result], timeout_seconds: float | None = None
    ) -> Result:
        """Run a coroutine and return its result, or raise TimeoutError."""
        ...

    def close(self, timeout_seconds: float | None = None) -> None:
        """Stop the loop."""
        ...


class Heartbeats(Protocol):
    """Sends the heartbeats of one source."""

    def wake(self) -> None:
        """Ask the source again when the next heartbeat is due."""
        ...

    def stop(self) -> None:
        """Send no more heartbeats; does not wait, and may be called on any thread."""
        ...

    def close(self) -> None:
        """Send no more heartbeats, and wait for the end of the heartbeat in flight."""
        ...


class Network:
    """Reaches nodes over gRPC; `taskraft.testing` overrides all methods."""

    is_dead = False
    """Whether the test kit has ended the network."""
    is_watched = True
    """Whether workers report handlers that block the event loop; the watch is a thread."""

    def open_channel(
        self, address: str, credentials: grpc.ChannelCredentials | None, number: int
    ) -> grpc.aio.Channel:
        """Return a channel to the node at an address."""
        return open_channel(address, credentials, number)

    def heartbeats(
        self,
        name: str,
        source: HeartbeatSource[Request, Response],
        method: Callable[[grpc.Channel], BlockingUnaryMethod[Request, Response]],
        addresses: Sequence[str],
        credentials: grpc.ChannelCredentials | None,
    ) -> Heartbeats:
        """Return the sender of the heartbeats of one source; see `HeartbeatThread`."""
        return HeartbeatThread(name, source, method, addresses, credentials)

    def client_loop(self) -> ClientLoop:
        """Return the event loop of a new client for threads."""
        return LoopThread()

    def client_connected(self) -> None:
        """Record that a client is about to open its first channel; see `_fork`."""
        _fork.client_connected()

    def client_disconnected(self) -> None:
        """Record that a client has closed its channels."""
        _fork.client_disconnected()

    def run_on(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[object, object, Result]
    ) -> Result:
        """Run a coroutine on the event loop of another thread, and wait for its result."""
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


GRPC: Final = Network()
_current = GRPC


def current() -> Network:
    """Return the network of clients that are created now."""
    return _current


@contextmanager
def using(network: Network) -> Iterator[None]:
    """Create clients on another network, in all threads."""
    global _current  # noqa: PLW0603 - state of the process, so that the code under test needs no change
    before, _current = _current, network
    try:
        yield
    finally:
        _current = before
