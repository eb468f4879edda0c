"""Provide the dependencies of handlers: open them before a handler runs, close them afterwards."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from taskraft._handler_error import ordinary
from taskraft.worker.context import Context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

T = TypeVar("T")
Scope: TypeAlias = Literal["task", "app"]
Provider: TypeAlias = "Callable[..., Any]"
Provided: TypeAlias = Any
"""A value of the type that its provider returns."""


@dataclass(frozen=True, slots=True, eq=False)
class Dependency:
    """The default value of a parameter that the worker provides; made by `Depends`."""

    provider: Provider
    scope: Scope


@overload
def Depends(f: Callable[..., AsyncIterator[T]], *, scope: Scope = "task") -> T: ...
@overload
def Depends(f: Callable[..., Iterator[T]], *, scope: Scope = "task") -> T: ...
@overload
def Depends(f: Callable[..., Awaitable[T]], *, scope: Scope = "task") -> T: ...
@overload
def Depends(f: Callable[..., T], *, scope: Scope = "task") -> T: ...
def Depends(f: Provider, *, scope: Scope = "task") -> Any:  # noqa: N802 - reads as a type, as in FastAPI
    """Declare a parameter that the worker provides; callers of `put` leave it out.

    Args:
        f: returns or yields the value. A generator is closed after the handler, or after the
            worker's drain. Its own parameters are a `Context`, other dependencies, or have
            defaults.
        scope: "task": once per task; "app": once per worker.
    """
    if scope not in ("task", "app"):
        raise ValueError(f'scope must be "task" or "app", not {scope!r}')
    return Dependency(f, scope)


class Providers:
    """Opens dependencies; those of the scope "app" live as long as the worker."""

    def __init__(self, overrides: Mapping[Provider, Provider]) -> None:
        """Store the providers with which a test replaces other providers."""
        self._overrides = overrides
        self._shared: dict[Provider, asyncio.Future[Any]] = {}
        self._stack = AsyncExitStack()

    async def close(self) -> None:
        """Close the dependencies of the scope "app", in reverse order."""
        await self._stack.aclose()
        self._shared.clear()

    async def resolve(
        self, wanted: Mapping[str, Dependency], context: Context, stack: AsyncExitStack
    ) -> dict[str, Any]:
        """Return the values of dependencies by parameter; `stack` closes them after the task."""
        found: dict[Provider, Any] = {}
        return {
            name: await self._value(dependency, context, stack, found)
            for name, dependency in wanted.items()
        }

    async def _value(
        self,
        dependency: Dependency,
        context: Context,
        stack: AsyncExitStack,
        found: dict[Provider, Any],
    ) -> Provided:
        if dependency.scope == "app":
            return await self._shared_value(dependency, context)
        if dependency.provider not in found:
            found[dependency.provider] = await self._open(dependency, context, stack, found)
        return found[dependency.provider]

    async def _shared_value(self, dependency: Dependency, context: Context) -> Provided:
        while True:
            shared = self._shared.get(dependency.provider)
            if shared is None:
                return await self._open_shared(dependency, context)
            if not shared.done():
                await asyncio.wait([shared])
            if not shared.cancelled():
                return shared.result()

    async def _open_shared(self, dependency: Dependency, context: Context) -> Provided:
        """Open a dependency for all tasks; if this task is interrupted, another task opens it."""
        shared = asyncio.get_running_loop().create_future()
        self._shared[dependency.provider] = shared
        try:
            value = await self._open(dependency, context, self._stack, {})
        except BaseException as error:
            del self._shared[dependency.provider]
            if isinstance(error, asyncio.CancelledError):
                shared.cancel()
                raise
            failure = ordinary(error)
            shared.set_exception(failure)
            shared.exception()  # retrieved: the failure is raised here
            raise failure  # noqa: B904 - the cause is set
        shared.set_result(value)
        return value

    async def _open(
        self,
        dependency: Dependency,
        context: Context,
        stack: AsyncExitStack,
        found: dict[Provider, Any],
    ) -> Provided:
        provider = self._overrides.get(dependency.provider, dependency.provider)
        arguments: dict[str, Any] = {}
        for parameter in inspect.signature(provider, eval_str=True).parameters.values():
            if parameter.annotation is Context:
                arguments[parameter.name] = context
            elif isinstance(parameter.default, Dependency):
                arguments[parameter.name] = await self._value(
                    parameter.default, context, stack, found
                )
        if inspect.isasyncgenfunction(provider):
            return await stack.enter_async_context(asynccontextmanager(provider)(**arguments))
        if inspect.isgeneratorfunction(provider):
            return stack.enter_context(contextmanager(provider)(**arguments))
        value = provider(**arguments)
        return await value if inspect.isawaitable(value) else value
