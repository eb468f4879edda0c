"""Call functions for many elements, a bounded number in one turn of the event loop, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

ENDED_AT_ONCE: Final = 200
"""Maximum number of waiting calls, or of streams, that end in one turn of the event loop."""

T = TypeVar("T")


class SlicedCalls(Generic[T]):
    """Calls that are due, first in, first out; they begin in the next turn of the event loop.

    Args:
        at_once: maximum number of calls in one turn; at least 1.
    """

    __slots__ = ("_at_once", "_due", "_is_scheduled")

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._due: deque[tuple[Callable[[T], object], Iterator[T]]] = deque()
        self._is_scheduled = False

    def add(self, function: Callable[[T], object], elements: Iterable[T]) -> None:
        """Call a function with each element, later; the function raises no errors.

        ``elements`` must not change until the last call.
        """
        self._due.append((function, iter(elements)))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._call_some)

    def _call_some(self) -> None:
        self._is_scheduled = False
        left = self._at_once
        while self._due and left:
            function, elements = self._due[0]
            called = _call_each(function, islice(elements, left))
            if called < left:
                self._due.popleft()
            left -= called
        if self._due:
            self._schedule()


def _call_each(function: Callable[[T], object], elements: Iterable[T]) -> int:
    """Return the number of elements."""
    count = 0
    for element in elements:
        function(element)
        count += 1
    return count
