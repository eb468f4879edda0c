"""The task in taskraft: in a thread as in the compared frameworks, a coroutine, and a process."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from typing import cast

from bench.peers.producer import put_all
from bench.peers.record import note
from taskraft.worker import App, Context, Middleware


class Recording(Middleware):
    """Records the starts of handlers in other processes."""

    async def run(self, ctx: Context, call_next: Callable[[], Awaitable[object]]) -> object:
        """Run a handler, which returns the time of its start and that of the put."""
        start_ns, sent_ns = cast("list[int]", await call_next())
        note(sent_ns, start_ns)
        return None


app = App("peers")
process_app = App("peers-processes", middleware=[Recording()])


@app.task(name="thread")
def thread(sent_ns: int) -> None:
    """Record the start of the handler."""
    note(sent_ns)


@app.task(name="coroutine")
async def coroutine(sent_ns: int) -> None:
    """Record the start of the handler."""
    note(sent_ns)


@process_app.task(name="process", pool="process")
def process(sent_ns: int) -> list[int]:
    """Return the start of the handler, and the time of the put."""
    return [time.monotonic_ns(), sent_ns]


def main() -> None:
    """Put tasks: name of the task, number of tasks, and tasks per second or 0."""
    name, tasks, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    chosen = process_app if name == "process" else app
    task = chosen.tasks[name]
    with chosen:
        if rate:
            put_all(task.put, tasks, rate)
        else:
            chosen.put_many([task.plan(time.monotonic_ns()) for _ in range(tasks)])


if __name__ == "__main__":
    main()
