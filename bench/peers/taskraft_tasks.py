"""The task in taskraft: in a thread as in the compared frameworks, and as a coroutine."""

from __future__ import annotations

import sys
import time

from bench.peers.producer import put_all
from bench.peers.record import note
from taskraft.worker import App

app = App("peers")


@app.task(name="thread")
def thread(sent_ns: int) -> None:
    """Record the start of the handler."""
    note(sent_ns)


@app.task(name="coroutine")
async def coroutine(sent_ns: int) -> None:
    """Record the start of the handler."""
    note(sent_ns)


def main() -> None:
    """Put tasks: name of the task, number of tasks, and tasks per second or 0."""
    task, tasks, rate = app.tasks[sys.argv[1]], int(sys.argv[2]), float(sys.argv[3])
    with app:
        if rate:
            put_all(task.put, tasks, rate)
        else:
            app.put_many([task.plan(time.monotonic_ns()) for _ in range(tasks)])


if __name__ == "__main__":
    main()
