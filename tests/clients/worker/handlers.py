"""Handlers of the tests; a task must be a module-level function."""

import asyncio
import threading
from contextlib import asynccontextmanager, suppress

from taskraft.worker import (
    BatchError,
    Context,
    Depends,
    RejectTask,
    RetryTask,
    Snooze,
    TaskInterrupted,
)
from tests.turns import turns_until

begun: asyncio.Event
"""Set by a handler that has begun; a new one for each worker, as each has its own event loop."""
released = threading.Event()
events = []
blocked: set[int] = set()
"""Identifiers of the threads that run ``block``; a worker does not wait for stuck threads."""


async def add(a: int, b: int = 2) -> int:
    return a + b


def subtract(a: int, b: int) -> int:
    return a - b


async def note(word: str) -> str:
    events.append(word)
    return word


async def forget(word: str) -> None:
    events.append(word)


async def fail(kind: str) -> None:
    match kind:
        case "retry":
            raise RetryTask(delay="1h", reason="not yet")
        case "snooze":
            raise Snooze("1h")
        case "reject":
            raise RejectTask("no such order")
        case "fatal":
            raise LookupError("gone")
        case "exit":
            raise SystemExit(3)
        case "cancelled":
            raise asyncio.CancelledError
        case "result":
            return 5
        case _:
            raise ValueError("broken")


async def hang(ctx: Context) -> str:
    events.append("begun")
    begun.set()
    try:
        await asyncio.Event().wait()
    finally:
        events.append("cleaned up")


def block(ctx: Context) -> None:
    blocked.add(threading.get_ident())
    try:
        events.append("begun")
        ctx._loop.call_soon_threadsafe(begun.set)
        released.wait(60)
        ctx.check()
    except TaskInterrupted as error:
        events.append(type(error).__name__)
    finally:
        blocked.discard(threading.get_ident())


async def connection(ctx: Context):
    events.append(f"open {ctx.attempt}")
    yield "connected"
    events.append("close")


def shared():
    events.append("open app")
    yield "shared"
    events.append("close app")


async def depends(
    word: str, *, link: str = Depends(connection), common: str = Depends(shared, scope="app")
) -> str:
    return f"{word} {link} {common}"


async def slow(ctx: Context) -> str:
    """Open at the second call."""
    events.append("open")
    if len(events) == 1:
        begun.set()
        await asyncio.Event().wait()
    return "opened"


async def depends_on_slow(*, opened: str = Depends(slow, scope="app")) -> str:
    return opened


async def cancel_itself(then: str) -> str:
    asyncio.current_task().cancel()
    if then == "wait":
        await asyncio.Event().wait()
    return "returned"


def current(word: str) -> str:
    return f"{word} {Context.current().task.id}"


async def report(ctx: Context) -> None:
    ctx.progress(0.5, "half")
    begun.set()
    await asyncio.Event().wait()


async def index(rows: list[int]) -> list[str]:
    """Index rows; the row 13 fails, 99 fails all rows, and 7 and 8 return no list of results."""
    events.append(rows)
    if 99 in rows:
        raise LookupError("no index")
    if 13 in rows:
        results = [str(row) for row in rows]
        raise BatchError({rows.index(13): ValueError("unlucky")}, results)
    if 8 in rows:
        return "all"
    return ["one"] if 7 in rows else [str(row) for row in rows]


def index_in_thread(ctx: Context, rows: list[int]) -> None:
    events.append([len(ctx.tasks), rows])


async def hang_all(rows: list[int]) -> None:
    begun.set()
    await asyncio.Event().wait()


async def pass_virtual(seconds):
    """Let the virtual clock run for a time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


@asynccontextmanager
async def running(app, **options):
    """Run a worker inside the block; at the end it drains, and the threads of handlers end."""
    global begun  # noqa: PLW0603 - handlers are module-level functions
    begun = asyncio.Event()
    released.clear()
    events.clear()
    await app.acreate_tubes()
    worker = asyncio.create_task(app.run(signals=False, **options))
    try:
        yield worker
    finally:
        released.set()
        app.stop()
        await worker
        # A stuck thread would add its events to those of the next test.
        await turns_until(lambda: not blocked)
