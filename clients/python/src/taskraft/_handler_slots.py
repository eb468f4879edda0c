"""Limit how many handlers run at once; a handler that waits for other tasks releases its slot.

If waiting handlers kept their slots, they could wait forever for tasks that no free slot can
process. A context variable holds the hooks of the current handler; its coroutines, and the threads
from which it calls the client, inherit the context.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol

from taskraft._permits import Permits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


class WaitHook(Protocol):
    """Called when a handler starts and stops waiting for other tasks.

    Calls come in pairs; several parts of one handler may wait at the same time.
    """

    def wait_started(self) -> None:
        """Release the handler's share of the concurrency limit."""
        ...

    async def wait_ended(self) -> None:
        """Return after the handler has its share of the concurrency limit again."""
        ...


_wait_hooks: Final[ContextVar[tuple[WaitHook, ...]]] = ContextVar("taskraft_wait_hooks", default=())


def add_wait_hook(hook: WaitHook) -> tuple[WaitHook, ...]:
    """Add `hook` to the hooks of the current context; return the hooks before."""
    outer = _wait_hooks.get()
    _wait_hooks.set((*outer, hook))
    return outer


def set_wait_hooks(hooks: tuple[WaitHook, ...]) -> None:
    """Replace the hooks of the current context."""
    _wait_hooks.set(hooks)


@contextmanager
def wait_hook_set(hook: WaitHook) -> Iterator[None]:
    """Add `hook` to the hooks of the current context in a block."""
    outer = add_wait_hook(hook)
    try:
        yield
    finally:
        set_wait_hooks(outer)


@asynccontextmanager
async def waiting_for_tasks() -> AsyncIterator[None]:
    """Call the hooks of the current handler before and after the body waits for other tasks."""
    hooks = _wait_hooks.get()
    for hook in hooks:
        hook.wait_started()
    try:
        yield
    finally:
        for hook in hooks:
            await hook.wait_ended()


class _RemoteWaitHook:
    """A hook of a handler in a thread whose client runs on another event loop than the worker."""

    def __init__(self, hook: WaitHook, loop: asyncio.AbstractEventLoop) -> None:
        self._hook = hook
        self._loop = loop

    def wait_started(self) -> None:
        """Call the hook on the event loop of the worker."""
        self._loop.call_soon_threadsafe(self._hook.wait_started)

    async def wait_ended(self) -> None:
        """Call the hook on the event loop of the worker, and wait for it."""
        ending = self._ended()
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ending, self._loop))

    async def _ended(self) -> None:
        await self._hook.wait_ended()


def bind_wait_hooks() -> None:
    """Let the hooks of the current context be called from other event loops and threads."""
    loop = asyncio.get_running_loop()
    _wait_hooks.set(tuple(_RemoteWaitHook(hook, loop) for hook in _wait_hooks.get()))


class HandlerSlots:
    """A fixed number of slots, assigned in FIFO order."""

    def __init__(self, slots: int) -> None:
        self._free = Permits(slots)

    @property
    def has_free(self) -> bool:
        """Whether `take` returns at once."""
        return self._free.has_free

    async def take(self) -> HandlerSlot:
        """Wait for a free slot and return it."""
        await self._free.acquire()
        return HandlerSlot(self._free)


class HandlerSlot:
    """The slot of one handler.

    Invariant: the slot is held at most once, and not while a part of the handler waits.
    """

    def __init__(self, free: Permits) -> None:
        self._free = free
        self.on_change: Callable[[int], None] | None = None
        """Called with -1 when the slot is released, and with 1 when it is held again."""
        self._is_held = True
        self._is_over = False
        self._waiting = 0

    def wait_started(self) -> None:
        """Release the slot."""
        self._waiting += 1
        self._release()

    async def wait_ended(self) -> None:
        """Take the slot again, unless another part of the handler still waits."""
        self._waiting -= 1
        if not self._is_wanted():
            return
        await self._free.acquire()
        if self._is_wanted():
            self._is_held = True
            self._note(1)
        else:  # another part waits or holds the slot already, or the handler has ended
            self._free.release()

    def close(self) -> None:
        """Release the slot permanently, because the handler has ended."""
        self._is_over = True
        self._release()
        self.on_change = None  # no reference cycle, which only the garbage collector would free

    def _is_wanted(self) -> bool:
        return not (self._waiting or self._is_held or self._is_over)

    def _release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._free.release()
            self._note(-1)

    def _note(self, change: int) -> None:
        if self.on_change is not None:
            self.on_change(change)
