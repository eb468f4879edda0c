"""An app whose tasks run in processes; a spawned process imports this module."""

import logging
import os
import signal
import threading
from pathlib import Path

from taskraft.worker import App, Context, Depends, RetryTask

TUBE = "PROCESS_TASKS_TUBE"
"""Variable with the tube, which the processes inherit."""

app = App("processes", defaults={"pool": "process", "tube": os.environ.get(TUBE, "default")})
lives = []


@app.lifespan
async def life(_app):
    lives.append(os.getpid())
    yield


async def link(ctx: Context):
    yield f"link {ctx.attempt}"


@app.task
def where(word: str, *, connection: str = Depends(link)) -> list[str]:
    in_main = threading.current_thread() is threading.main_thread()
    return [word, connection, str(os.getpid()), str(lives == [os.getpid()] and in_main)]


async def logging_link(ctx: Context):
    logging.getLogger("shop").warning("opened")
    yield


@app.task
def log_lines(ctx: Context, word: str, *, connection: None = Depends(logging_link)) -> str:
    logging.getLogger("shop").warning("said %s", word)
    ctx.log.warning("said by the context")
    return word


class ReadableIn:
    """A value that only one process, or none, can read after pickling."""

    def __init__(self, pid):
        self.pid = pid

    def __reduce__(self):
        return read_in, (self.pid,)

    def __repr__(self):
        return f"for {self.pid}"


def read_in(pid):
    """Return a value that only one process can read."""
    if os.getpid() != pid:
        raise LookupError(pid)
    return ReadableIn(pid)


@app.task
def log_odd_fields(word: str) -> str:
    lines = logging.getLogger("shop")
    odd = (threading.Lock(), ReadableIn(0), ReadableIn(os.getpid()), [1])
    for place, value in enumerate(odd):
        lines.warning("line %d", place, extra={"odd": value})
    return word


class Unpicklable(ValueError):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


@app.task(fatal=(LookupError, Unpicklable), keep_result=0)
def fail(kind: str) -> int:
    match kind:
        case "fatal":
            raise KeyError("gone")
        case "fatal, unpicklable":
            raise Unpicklable("a", "b")
        case "retry":
            raise RetryTask(delay="1h", reason="not yet")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "broken":
            raise ValueError("broken")
    return "5"


@app.task
def hang(ctx: Context, path: str, *, is_deaf: bool = False) -> None:
    ctx.progress(0.5, "half")
    never = threading.Event()
    try:
        never.wait()
    finally:
        Path(path).write_text("cleaned up")
        if is_deaf:
            never.wait()


@app.task
def follow(ctx: Context) -> None:
    ctx.put_on_success(where.options(delay="1h").plan("later"))
