"""Use an app in a Starlette or FastAPI application.

    api = FastAPI(lifespan=lifespan(app))

    @api.post("/orders")
    async def order(order: int, tasks: Annotated[App, Depends(current_app)]) -> str: ...

See docs/integrations.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from taskraft.worker import App
from taskraft.worker.options import START_TIMEOUT_DEFAULT, WorkerOptions

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from taskraft import Duration


def lifespan(
    app: App,
    *,
    worker: WorkerOptions | None = None,
    start_timeout: Duration = START_TIMEOUT_DEFAULT,
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Return a lifespan that connects an app when the server starts, and closes it at the end.

    The start creates the missing tubes of the app. An application with its own lifespan enters this
    lifespan inside it: `async with lifespan(app)(api): ...`.

    Args:
        app: the app whose tasks the endpoints put.
        worker: options of a worker in the process of the server; `{}` for the defaults. The worker
            drains when the server stops. Default: no worker.
        start_timeout: maximum time for which the start tries to reach the cluster. If it does not
            succeed, the server does not start.
    """

    @asynccontextmanager
    async def connected(asgi: Starlette) -> AsyncIterator[None]:
        asgi.state.taskraft = app
        async with app:
            try:
                if worker is None:
                    await app.acreate_tubes(timeout=start_timeout)
                    yield
                else:
                    options: WorkerOptions = {"start_timeout": start_timeout, **worker}
                    async with app.running(**options):
                        yield
            finally:
                # Endpoints without `async` run in threads, which have a client of their own.
                await asyncio.to_thread(app.clients.close)

    return connected


async def current_app(connection: HTTPConnection) -> App:
    """Return the app of the lifespan, as the dependency `Depends(current_app)` of FastAPI.

    Raises:
        RuntimeError: the application does not run the lifespan.
    """
    app: App | None = getattr(connection.app.state, "taskraft", None)
    if app is None:
        raise RuntimeError(
            "the application has no taskraft app; create it with lifespan=lifespan(app) from "
            "taskraft.integrations.starlette"
        )
    return app
