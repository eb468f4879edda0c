"""Check all elements after a change, a bounded number in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

T = TypeVar("T")


class SlicedChecks(Generic[T]):
    """Checks of the elements of a collection, which may change at any time.

    A change during a check of all elements is followed by another check of all elements.

    Args:
        elements: the collection; the checks begin with the elements that it has by then.
        check: checks an element, which may have left the collection; returns the cost, at least 1.
        at_once: cost after which the checks continue in the next turn of the event loop.
    """

    __slots__ = ("_at_once", "_check", "_elements", "_is_changed", "_is_scheduled", "_to_check")

    def __init__(self, elements: Collection[T], check: Callable[[T], int], at_once: int) -> None:
        self._elements = elements
        self._check = check
        self._at_once = at_once
        self._to_check: deque[T] = deque()
        """Elements that the current check of all elements has not reached."""
        self._is_changed = False
        """Whether something changed after the current check of all elements began."""
        self._is_scheduled = False

    def changed(self) -> None:
        """Check all elements, later."""
        self._is_changed = True
        self._schedule()

    def _schedule(self) -> None:
        if self._elements and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._check_some)

    def _check_some(self) -> None:
        self._is_scheduled = False
        if not self._to_check:
            self._is_changed = False
            self._to_check.extend(self._elements)
        left = self._at_once
        while self._to_check and left > 0:
            left -= self._check(self._to_check.popleft())
        if self._to_check or self._is_changed:
            self._schedule()
