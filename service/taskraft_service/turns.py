"""Run one slice of all long work in each iteration of the event loop.

Long work is cut into slices of a few milliseconds. If each of 200 calls only let other work run
between its slices, an iteration would run 200 slices, and the heartbeats to the other members would
wait for all of them. The calls therefore take turns, in the order in which they ask.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final
from weakref import WeakKeyDictionary

_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns]] = WeakKeyDictionary()


async def next_turn() -> None:
    """Wait until it is this slice's turn; call it between slices, and before the first one."""
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = _Turns()
    await turns.wait(loop)


class _Turns:
    """The slices of one event loop that wait for their turns."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    def wait(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return a future that is done when the slice may run."""
        turn = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._give, loop)
        self._waiting.append(turn)
        return turn

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the next turn; the slice runs in the next iteration, before the turn after it."""
        waiting = self._waiting
        while waiting:
            turn = waiting.popleft()
            if not turn.done():  # the call may be cancelled
                turn.set_result(None)
                break
        if waiting:
            loop.call_soon(self._give, loop)
