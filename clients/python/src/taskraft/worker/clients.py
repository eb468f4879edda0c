"""Hold the clients of an app: one for threads, and one for each event loop."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from taskraft import AsyncClient, _network
from taskraft._blocking_portal import BlockingPortal

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping

    from taskraft import Client

Value = TypeVar("Value")


class AppClients:
    """Creates clients on first use, so that importing an app connects to nothing."""

    def __init__(self, target: str | None, access: Mapping[str, Any]) -> None:
        """Store the target and the credentials of clients that this object creates."""
        self._target = target
        self._access = access
        self._blocking: tuple[AsyncClient, BlockingPortal] | None = None
        self._is_own = False
        self._given: AsyncClient | None = None
        self._worker: tuple[asyncio.AbstractEventLoop, AsyncClient] | None = None
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = (
            WeakKeyDictionary()
        )

    def use(self, client: Client | AsyncClient) -> None:
        """Use a client instead of creating one; the caller closes the client."""
        if isinstance(client, AsyncClient):
            self._given = client
        else:
            self._blocking = (client._inner, client._portal)  # noqa: SLF001 - the same wheel

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore, at the end of the block, the clients that were set before the block."""
        before = self._blocking, self._is_own, self._given
        try:
            yield
        finally:
            self._blocking, self._is_own, self._given = before

    def blocking_inner(self) -> AsyncClient:
        """Return the asyncio client of the client for threads.

        Raises:
            RuntimeError: an event loop runs in this thread.
        """
        self._check_thread()
        return self._for_threads()[0] if self._worker is None else self._worker[1]

    def run(self, coroutine: Coroutine[object, object, Value]) -> Value:
        """Run a coroutine of `blocking_inner` and return its result."""
        if self._worker is None:
            return self._for_threads()[1].run(coroutine)
        return _network.current().run_on(self._worker[0], coroutine)

    @contextmanager
    def lent_to_threads(self) -> Iterator[AsyncClient]:
        """Let handlers in threads use the client of the running event loop."""
        client = self.here()
        self._worker = (asyncio.get_running_loop(), client)
        try:
            yield client
        finally:
            self.end_loan()

    def end_loan(self) -> None:
        """Let handlers in threads use the client for threads again."""
        self._worker = None

    @staticmethod
    def _check_thread() -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError(
                "this call would block the event loop; use the method with an a in front, such as "
                "aput and aresult"
            )

    def _for_threads(self) -> tuple[AsyncClient, BlockingPortal]:
        if self._blocking is None:
            inner = AsyncClient(self._target, **self._access)
            self._blocking = (inner, BlockingPortal(inner.close))
            self._is_own = True
        return self._blocking

    def here(self) -> AsyncClient:
        """Return the client of the running event loop."""
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        client = self._by_loop.get(loop)
        if client is None:
            client = self._by_loop[loop] = AsyncClient(self._target, **self._access)
        return client

    async def close_here(self) -> None:
        """Close the client of the running event loop, unless it was given."""
        client = self._by_loop.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def close(self) -> None:
        """Close the client for threads, unless it was given."""
        if self._blocking is not None and self._is_own:
            self._blocking[1].close()
            self._blocking, self._is_own = None, False
