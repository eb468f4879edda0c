"""The app of the tests of the kit."""

import asyncio
import threading
from contextlib import suppress

from taskraft import Retry
from taskraft.worker import App, Context, RetryTask, Snooze

app = App("shop", target="cluster.example:7401")
app.tube("mail", retry=Retry(attempts_max=3, backoff="10s", jitter=0))

delivered = []


@app.task(tube="mail")
async def welcome(name: str) -> str:
    delivered.append(name)
    return f"Hello {name}"


@app.task(tube="mail")
async def broken(name: str) -> None:
    raise ValueError(name)


@app.task(tube="mail")
async def slow(seconds: int) -> str:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):  # virtual seconds
            await asyncio.Event().wait()
    return "done"


@app.task(tube="mail")
async def poll(url: str) -> None:
    raise RetryTask(delay="1m", reason="not ready")


@app.task(tube="mail")
async def snooze(times: int) -> str:
    if len(delivered) < times:
        delivered.append("snoozed")
        raise Snooze("1h")
    return "awake"


@app.task(tube="mail")
def in_thread(name: str) -> str:
    delivered.append(threading.current_thread().name)
    return welcome.put(name).result(timeout="1m")


is_released = threading.Event()


@app.task(tube="mail", time_limit="10s")
def hang_in_thread() -> None:
    is_released.wait(60)


@app.batch_task(tube="rows", size=100, linger="1s")
async def index(rows: list[int]) -> list[int]:
    return [row * row for row in rows]


@app.task(tube="mail")
async def parent(ctx: Context, name: str) -> None:
    ctx.put_on_success(welcome.plan(name))
