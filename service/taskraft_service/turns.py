"""Run the slices of long work in turns, so that each iteration of the event loop stays short.

Long work is cut into slices of a few milliseconds. If each of 200 calls only let other work run
between its slices, an iteration would run 200 slices, and the heartbeats to the other members would
wait for all of them. The calls therefore take turns. An iteration has one turn, and a few while the
slices are short. The owners of the calls come one after another, each with the call that has asked
first, so that many calls of one owner do not delay those of another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final
from weakref import WeakKeyDictionary

ITERATION_SECONDS: Final = 0.005
"""Duration of an iteration above which the next one has a single turn."""
TURNS_MAX: Final = 4
"""Maximum number of turns of one iteration."""

turn_owner: Final[ContextVar[str]] = ContextVar("turn_owner", default="")
"""The principal or the address for which a task works; empty for work of the node itself."""
_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]] = WeakKeyDictionary()


async def next_turn() -> None:
    """Wait until it is this slice's turn; call it between slices, and before the first one."""
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = Turns(loop.time)
    await turns.wait(loop, turn_owner.get())


class Turns:
    """The slices of one event loop that wait for their turns.

    Args:
        clock: returns the time in seconds.
    """

    __slots__ = ("_clock", "_given_at", "_number", "_waiting")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._given_at = 0.0
        self._number = 1
        """Number of turns of the next iteration."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """The slices of each owner; the owner that comes next is the first."""

    def wait(self, loop: asyncio.AbstractEventLoop, owner: str) -> asyncio.Future[None]:
        """Return a future that is done when the slice of an owner may run."""
        if not self._waiting:
            loop.call_soon(self._give, loop)
        turn = loop.create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        return turn

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the next turns; their slices run in the next iteration, before ``_give``."""
        now = self._clock()
        is_short = now - self._given_at <= ITERATION_SECONDS
        self._number = min(2 * self._number, TURNS_MAX) if is_short else 1
        self._given_at = now
        given = 0
        while self._waiting and given < self._number:
            given += self._give_one()
        if self._waiting:
            loop.call_soon(self._give, loop)

    def _give_one(self) -> bool:
        """Give a turn to the next owner; return whether the slice still waits for the turn."""
        owner = next(iter(self._waiting))
        slices = self._waiting.pop(owner)
        turn = slices.popleft()
        if slices:
            self._waiting[owner] = slices
        if turn.done():  # the call was cancelled
            return False
        turn.set_result(None)
        return True
