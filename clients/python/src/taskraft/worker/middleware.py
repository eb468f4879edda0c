"""Wrap puts, handlers and settlements: around-hooks that see arguments, results and exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from taskraft.worker.context import Context
    from taskraft.worker.handle import Handle


@dataclass(slots=True)
class PutRequest:
    """A task that is being put; a middleware may change it."""

    name: str
    """Type of the task."""
    tube: str
    payload: bytes
    options: dict[str, Any]
    """Options of the put, such as headers, delay and priority."""


class Middleware:
    """Base class of middlewares; the first middleware of an app is the outermost."""

    async def put(
        self, request: PutRequest, call_next: Callable[[PutRequest], Awaitable[Handle[Any]]]
    ) -> Handle[Any]:
        """Put a task; runs on the event loop of the client."""
        return await call_next(request)

    async def run(self, ctx: Context, call_next: Callable[[], Awaitable[object]]) -> object:
        """Run a handler, sync or async; runs on the event loop of the worker."""
        return await call_next()

    async def settle(self, ctx: Context, call_next: Callable[[], Awaitable[None]]) -> None:
        """Settle the task of a handler that has ended; not called for batches.

        `call_next` returns when the server has accepted the acknowledgement or the release. It
        raises the server's refusal, such as `LeaseStale`.
        """
        await call_next()


def around_put(
    middlewares: Sequence[Middleware],
    innermost: Callable[[PutRequest], Awaitable[Handle[Any]]],
) -> Callable[[PutRequest], Awaitable[Handle[Any]]]:
    """Return a put that passes through all middlewares."""
    call = innermost
    for middleware in reversed(middlewares):
        call = partial(middleware.put, call_next=call)
    return call


def around_run(
    middlewares: Sequence[Middleware], ctx: Context, innermost: Callable[[], Awaitable[object]]
) -> Callable[[], Awaitable[object]]:
    """Return a handler call that passes through all middlewares."""
    call = innermost
    for middleware in reversed(middlewares):
        call = partial(middleware.run, ctx, call)
    return call


def around_settle(
    middlewares: Sequence[Middleware], ctx: Context, innermost: Callable[[], Awaitable[None]]
) -> Callable[[], Awaitable[None]]:
    """Return a settlement that passes through all middlewares."""
    call = innermost
    for middleware in reversed(middlewares):
        call = partial(middleware.settle, ctx, call)
    return call
