"""Create blocking methods from the methods of the asyncio client.

`put = blocking(AsyncTube.put)` defines one method: its parameters, types and docstring are those of
the coroutine function, so the two clients cannot differ.
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
    """A blocking object that wraps an object of the asyncio client."""

    @property
    def _inner(self) -> Inner_co:
        """Return the wrapped object of the asyncio client."""

    @property
    def _portal(self) -> BlockingPortal:
        """Runs coroutines on the client's event loop."""


def blocking(
    method: Callable[Concatenate[Inner, Parameters], Coroutine[object, object, Result]],
) -> Callable[Concatenate[BlockingFacade[Inner], Parameters], Result]:
    """Return a blocking method that runs ``method`` of the wrapped object and waits for it."""

    @wraps(method)
    def call(
        self: BlockingFacade[Inner], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        return self._portal.run(method(self._inner, *args, **kwargs))

    return call


def iterating(
    method: Callable[Concatenate[Inner, Parameters], AsyncIterator[Item]],
) -> Callable[Concatenate[BlockingFacade[Inner], Parameters], Iterator[Item]]:
    """Return a method that yields the items of the async iterator that ``method`` returns."""

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
