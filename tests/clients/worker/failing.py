"""Code of an app that raises an exception of any kind at any place; the type names the place."""

import asyncio
import json

from taskraft.worker import (
    App,
    BatchError,
    CancelRequested,
    Context,
    Depends,
    JsonCodec,
    LeaseLost,
    Middleware,
    WorkerStopping,
)
from taskraft.worker.child_process import Interrupted
from taskraft.worker.errors import NotBegun


class Panic(BaseException):
    """Stands for the panics of extensions in Rust."""


class Unpicklable(ValueError):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


class Unreadable(ValueError):
    def __str__(self):
        raise KeyboardInterrupt


class Unreceivable(ValueError):
    def __reduce__(self):
        return next, (iter(()),)


KINDS = {
    type(error).__name__: error
    for error in (
        ValueError("broken"),
        StopIteration("broken"),
        StopAsyncIteration("broken"),
        GeneratorExit("broken"),
        KeyboardInterrupt("broken"),
        SystemExit(3),
        asyncio.CancelledError("broken"),
        BaseExceptionGroup("broken", [KeyboardInterrupt()]),
        Panic("broken"),
        Unpicklable("a", "b"),
        Unreadable("broken"),
        Unreceivable("broken"),
        WorkerStopping("nobody has asked"),
        LeaseLost("nobody has asked"),
        CancelRequested("nobody has asked"),
        Interrupted("nobody has asked"),
        NotBegun("nobody has asked"),
    )
}
"""Exceptions by the name of their type; none of them stands for a request of the worker."""

RESULTS = {
    "too large": "x" * (1 << 20),
    "wrong type": 5,
    "no text": "\ud800",
}
"""Results that can never be stored, of handlers that return a str."""

DEPENDENCY_PLACES = ("shared", "open", "enter", "exit", "aenter", "aexit")
"""The shared one comes first: it is not opened again after a success."""
PLACES = (*DEPENDENCY_PLACES, "handler", "run", "ran", "settle", "decode", "encode")


def fail_at(place, ctx, kind=None):
    """Raise the exception that the task names if the task names the place."""
    if ctx.task.message.spec.type == place:
        raise KINDS[kind or kind_in(ctx.task.payload)]


def kind_in(payload):
    found = json.loads(payload)
    return found["kind"] if isinstance(found, dict) else found


async def opened(ctx: Context) -> str:
    fail_at("open", ctx)
    return "opened"


def entered(ctx: Context):
    fail_at("enter", ctx)
    yield "entered"
    fail_at("exit", ctx)


async def entered_later(ctx: Context):
    fail_at("aenter", ctx)
    yield "entered"
    fail_at("aexit", ctx)


async def shared(ctx: Context):
    fail_at("shared", ctx)
    return "shared"


OPENED, ENTERED, LATER = Depends(opened), Depends(entered), Depends(entered_later)
SHARED = Depends(shared, scope="app")


async def in_coroutine(
    ctx: Context,
    kind: str,
    *,
    one: str = OPENED,
    two: str = ENTERED,
    three: str = LATER,
    four: str = SHARED,
) -> str:
    return ended(ctx, kind)


def in_thread(
    ctx: Context,
    kind: str,
    *,
    one: str = OPENED,
    two: str = ENTERED,
    three: str = LATER,
    four: str = SHARED,
) -> str:
    return ended(ctx, kind)


def ended(ctx, kind):
    fail_at("handler", ctx, kind)
    if kind in RESULTS:
        return RESULTS[kind]
    return f"result {kind}"


async def batch(
    ctx: Context,
    kinds: list[str],
    *,
    one: str = OPENED,
    two: str = ENTERED,
    three: str = LATER,
    four: str = SHARED,
) -> list[str]:
    return all_ended(ctx, kinds)


def batch_in_thread(
    ctx: Context,
    kinds: list[str],
    *,
    one: str = OPENED,
    two: str = ENTERED,
    three: str = LATER,
    four: str = SHARED,
) -> list[str]:
    return all_ended(ctx, kinds)


def all_ended(ctx, kinds):
    if ctx.task.message.spec.type == "item":
        raise BatchError({at: KINDS[kind] for at, kind in enumerate(kinds)})
    return [ended(ctx, kind) for kind in kinds]


class FailingMiddleware(Middleware):
    async def run(self, ctx, call_next):
        fail_at("run", ctx)
        value = await call_next()
        fail_at("ran", ctx)
        return value

    async def settle(self, ctx, call_next):
        fail_at("settle", ctx)
        await call_next()


class FailingCodec(JsonCodec):
    def __init__(self, place):
        self._place = place

    def encode(self, value, type):
        if self._place == "encode" and isinstance(value, str) and value.startswith("result "):
            raise KINDS[value.removeprefix("result ")]
        return super().encode(value, type)

    def decode(self, data, type):
        if self._place == "decode":
            raise KINDS[kind_in(data)]
        return super().decode(data, type)


app = App(
    "failing", defaults={"pool": "process", "tube": "worker"}, middleware=[FailingMiddleware()]
)
"""An app whose tasks run in processes; a spawned process imports this module."""
for one_place in ("fine", "result", *PLACES):
    app.task(name=one_place, codec=FailingCodec(one_place))(in_thread)
