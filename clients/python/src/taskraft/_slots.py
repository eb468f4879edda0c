"""Bound how many handlers run at once; one that waits for other tasks lends its slot.

A handler that waits for a task which nobody has a slot left to work on would wait for ever. So who
waits for other tasks gives up what it has of its worker's concurrency, and takes it again
afterwards. What a handler has is found through a context variable, which its coroutines and the
threads that it calls the client from inherit.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class Share(Protocol):
    """What a handler has of the concurrency of its worker, and may lend.

    Calls come in pairs; several parts of one handler may wait at the same time.
    """

    def lend(self) -> None:
        """Let others have it."""
        ...

    async def take_back(self) -> None:
        """Return once the handler has it again."""
        ...


_shares: Final[ContextVar[tuple[Share, ...]]] = ContextVar("taskraft_shares", default=())


@contextmanager
def sharing(share: Share) -> Iterator[None]:
    """Let what runs in the context lend `share` while it waits for other tasks."""
    outer = _shares.get()
    _shares.set((*outer, share))
    try:
        yield
    finally:
        _shares.set(outer)


@asynccontextmanager
async def lending() -> AsyncIterator[None]:
    """Lend all shares of the handler that this is called from, and have them again at the end."""
    shares = _shares.get()
    for share in shares:
        share.lend()
    try:
        yield
    finally:
        for share in shares:
            await share.take_back()


class Slots:
    """So many handlers at once; slots go to those who want one in the order of their asking."""

    def __init__(self, slots: int) -> None:
        self._free = asyncio.Semaphore(slots)

    async def take(self) -> Slot:
        """Wait for a slot and return it."""
        await self._free.acquire()
        return Slot(self._free)


class Slot:
    """The slot of one handler.

    Invariant: it is held once or not at all; while a part of the handler waits it is not held.
    """

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._is_held = True
        self._is_over = False
        self._waiting = 0

    def lend(self) -> None:
        """Let another handler have it."""
        self._waiting += 1
        self._give_up()

    async def take_back(self) -> None:
        """Return once the handler has it again, or another part of the handler waits on."""
        self._waiting -= 1
        if not self._is_wanted():
            return
        await self._free.acquire()
        if self._is_wanted():
            self._is_held = True
        else:  # another part waits again, or was faster, or the handler has ended
            self._free.release()

    def leave(self) -> None:
        """Give it up for good: the handler has ended."""
        self._is_over = True
        self._give_up()

    def _is_wanted(self) -> bool:
        return not (self._waiting or self._is_held or self._is_over)

    def _give_up(self) -> None:
        if self._is_held:
            self._is_held = False
            self._free.release()
