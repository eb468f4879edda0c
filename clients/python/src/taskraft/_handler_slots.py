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


class WaitHook(Protocol):
    """What a handler has of the concurrency of its worker, and may wait_started.

    Calls come in pairs; several parts of one handler may wait at the same time.
    """

    def wait_started(self) -> None:
        """Let others have it."""
        ...

    async def wait_ended(self) -> None:
        """Return once the handler has it again."""
        ...


_wait_hooks: Final[ContextVar[tuple[WaitHook, ...]]] = ContextVar("taskraft_wait_hooks", default=())


@contextmanager
def wait_hook_set(hook: WaitHook) -> Iterator[None]:
    """Let what runs in the context wait_started `hook` while it waits for other tasks."""
    outer = _wait_hooks.get()
    _wait_hooks.set((*outer, hook))
    try:
        yield
    finally:
        _wait_hooks.set(outer)


@asynccontextmanager
async def waiting_for_tasks() -> AsyncIterator[None]:
    """Lend all hooks of the handler that this is called from, and have them again at the end."""
    hooks = _wait_hooks.get()
    for hook in hooks:
        hook.wait_started()
    try:
        yield
    finally:
        for hook in hooks:
            await hook.wait_ended()


class HandlerSlots:
    """So many handlers at once; slots go to those who want one in the order of their asking."""

    def __init__(self, slots: int) -> None:
        self._free = asyncio.Semaphore(slots)

    async def take(self) -> HandlerSlot:
        """Wait for a slot and return it."""
        await self._free.acquire()
        return HandlerSlot(self._free)


class HandlerSlot:
    """The slot of one handler.

    Invariant: it is held once or not at all; while a part of the handler waits it is not held.
    """

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._is_held = True
        self._is_over = False
        self._waiting = 0

    def wait_started(self) -> None:
        """Let another handler have it."""
        self._waiting += 1
        self._release()

    async def wait_ended(self) -> None:
        """Return once the handler has it again, or another part of the handler waits on."""
        self._waiting -= 1
        if not self._is_wanted():
            return
        await self._free.acquire()
        if self._is_wanted():
            self._is_held = True
        else:  # another part waits again, or was faster, or the handler has ended
            self._free.release()

    def close(self) -> None:
        """Give it up for good: the handler has ended."""
        self._is_over = True
        self._release()

    def _is_wanted(self) -> bool:
        return not (self._waiting or self._is_held or self._is_over)

    def _release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._free.release()
