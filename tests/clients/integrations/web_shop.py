"""A FastAPI application whose endpoints put tasks."""

from typing import Annotated

from fastapi import Depends, FastAPI

from taskraft.integrations.starlette import current_app, lifespan
from taskraft.worker import App

app = App("web", target="127.0.0.1:1")


@app.task(tube="mail")
async def welcome(name: str) -> str:
    return f"Hello {name}"


async def put(name: str, tasks: Annotated[App, Depends(current_app)]) -> str:
    (handle,) = await tasks.aput_many([welcome.plan(name)])
    return str(handle)


def put_in_thread(name: str) -> str:
    return str(welcome.put(name))


async def result(reference: str) -> str:
    return await app.handle(reference, welcome).aresult("30s")


def api(worker=None, **options):
    """Return a new application: `lifespan=None` leaves the lifespan out."""
    options.setdefault("lifespan", lifespan(app, worker=worker))
    made = FastAPI(**options)
    made.post("/tasks")(put)
    made.post("/tasks-in-threads")(put_in_thread)
    made.get("/results/{reference:path}")(result)
    return made
