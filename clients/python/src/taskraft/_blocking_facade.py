"""Make the methods of the asynchronous client callable from threads.

A method is named once, `put = blocking(AsyncTube.put)`: its parameters, their types and its
description are those of the coroutine, so that the two halves of the client cannot differ.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from taskraft._blocking_portal import BlockingPortal

Inner = TypeVar("Inner")
Inner_co = TypeVar("Inner_co", covariant=True)
Item = TypeVar("Item")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class BlockingFacade(Protocol[Inner_co]):
    """An object for threads: it knows its counterpart for asyncio, and the way to its loop."""

    @property
    def _inner(self) -> Inner_co:
        """The counterpart."""

    @property
    def _portal(self) -> BlockingPortal:
        """The way."""


def blocking(
    method: Callable[Concatenate[Inner, Parameters], Coroutine[object, object, Result]],
) -> Callable[Concatenate[BlockingFacade[Inner], Parameters], Result]:
    """Return a method of a facade that runs ``method`` of its counterpart and waits for it."""

    @wraps(method)
    def call(
        self: BlockingFacade[Inner], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        return self._portal.run(method(self._inner, *args, **kwargs))

    return call


def iterating(
    method: Callable[Concatenate[Inner, Parameters], AsyncIterator[Item]],
) -> Callable[Concatenate[BlockingFacade[Inner], Parameters], Iterator[Item]]:
    """Return a method of a facade that yields what ``method`` of its counterpart yields."""

    @wraps(method)
    def call(
        self: BlockingFacade[Inner], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Iterator[Item]:
        items = method(self._inner, *args, **kwargs)
        while found := self._portal.run(_next(items)):
            yield found[0]

    return call


async def _next(items: AsyncIterator[Item]) -> tuple[Item] | None:
    """Return the next item in a tuple; None at the end."""
    async for item in items:
        return (item,)
    return None
