"""Measure the CPU cost of the worker framework per no-op task: `python -m bench.worker`.

A null server in another process answers at once, so the CPU time of this process is that of the
client and of the framework. The rows of the client alone are the base: the cost of the framework is
the difference to the row with the same number of slots. Fewer slots mean fewer tasks per message,
so the client alone costs more with fewer slots. The CPU time of the processes of a pool is not
measured. The garbage collector is tuned as by `taskraft worker`. Each row shows the best of several
rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import grpc

from bench.client_batches import NullServer, consume_batches, report, report_async
from taskraft import AsyncClient
from taskraft._async_taken_task import AsyncTakenTask
from taskraft.v1 import schedule_service_pb2, task_service_pb2, tube_service_pb2
from taskraft.v1.schedule_service_pb2_grpc import (
    ScheduleServiceServicer,
    add_ScheduleServiceServicer_to_server,
)
from taskraft.v1.session_service_pb2_grpc import add_SessionServiceServicer_to_server
from taskraft.v1.task_service_pb2_grpc import add_TaskServiceServicer_to_server
from taskraft.v1.tube_service_pb2_grpc import TubeServiceServicer, add_TubeServiceServicer_to_server
from taskraft.worker import App, Context, Middleware
from taskraft.worker.collector import spare_the_collector

TASKS: Final = 20_000
PROCESS_TASKS: Final = 4_000
"""Number of tasks of a round with a process pool."""
SLOTS: Final = 100
THREADS: Final = 8
PROCESSES: Final = 2
PAYLOADS: Final = {"batch": b"7"}
PAYLOAD: Final = b'{"number":7,"text":"hello","share":0.5}'


class Progress:
    """Counts the handled tasks of a round, and ends the round after enough of them."""

    def __init__(self, app: App, tasks: int) -> None:
        """Begin a round of `tasks` tasks on the running event loop."""
        self.done = 0
        self._tasks = tasks
        self._app = app
        self._loop = asyncio.get_running_loop()

    def count(self, tasks: int) -> None:
        """Count handled tasks; stop the worker after the last task of the round."""
        before, self.done = self.done, self.done + tasks
        if before < self._tasks <= self.done:
            self._loop.call_soon_threadsafe(self._app.stop)


class Counting(Middleware):
    """Counts the tasks that other processes handle."""

    async def settle(self, ctx: Context, call_next: Callable[[], Awaitable[None]]) -> None:
        """Settle a task, and count it."""
        await call_next()
        progress.count(1)


progress: Progress
app = App("bench", defaults={"tube": "bench"})
counted_app = App("bench-processes", defaults={"tube": "bench"}, middleware=[Counting()])


@app.task(name="coroutine")
async def coroutine(number: int, text: str, share: float) -> None:
    """Do nothing."""
    progress.count(1)


@app.task(name="thread")
def thread(number: int, text: str, share: float) -> None:
    """Do nothing, in a thread."""
    progress.count(1)


@counted_app.task(name="process", pool="process")
def process(number: int, text: str, share: float) -> None:
    """Do nothing, in another process."""


@app.batch_task(name="batch", size=100)
async def batch(numbers: list[int]) -> None:
    """Do nothing with up to 100 tasks."""
    progress.count(len(numbers))


class Server(NullServer, TubeServiceServicer, ScheduleServiceServicer):
    """A null server with the tube of the app."""

    async def ListTubes(  # noqa: N802 - gRPC methods are PascalCase
        self, request: tube_service_pb2.ListTubesRequest, context: object
    ) -> tube_service_pb2.ListTubesResponse:
        """Answer ListTubes with the tube of the app."""
        return tube_service_pb2.ListTubesResponse(tubes=[tube_service_pb2.Tube(name="bench")])

    async def ListSchedules(  # noqa: N802 - gRPC methods are PascalCase
        self, request: schedule_service_pb2.ListSchedulesRequest, context: object
    ) -> schedule_service_pb2.ListSchedulesResponse:
        """Answer ListSchedules with no schedule."""
        return schedule_service_pb2.ListSchedulesResponse()

    async def Subscribe(  # noqa: N802 - gRPC methods are PascalCase
        self, requests: AsyncIterator[task_service_pb2.SubscribeRequest], context: object
    ) -> AsyncIterator[task_service_pb2.SubscribeResponse]:
        """Send as many tasks of the first type as the credit allows, until the client stops."""
        opening = await anext(aiter(requests))
        kind = opening.open.types[0] if opening.open.types else "coroutine"
        self.spec.type = kind
        self.spec.payload = PAYLOADS.get(kind, PAYLOAD)
        self.spec.content_type = "application/json"
        async for response in self.answers(requests):
            yield response


async def serve() -> None:
    """Serve until killed; print the port."""
    server = grpc.aio.server()
    null = Server()  # type: ignore[abstract]  # the other methods are never called
    add_TaskServiceServicer_to_server(null, server)
    add_SessionServiceServicer_to_server(null, server)
    add_TubeServiceServicer_to_server(null, server)
    add_ScheduleServiceServicer_to_server(null, server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


async def client_alone(target: str, slots: int) -> int:
    """Handle tasks with `AsyncSubscription.work`."""
    done = 0
    async with AsyncClient(target) as client, client.subscribe("bench", credit=slots) as tasks:

        async def handle(_task: AsyncTakenTask) -> None:
            nonlocal done
            done += 1
            if done == TASKS:
                await tasks.stop()

        await tasks.work(handle)
    return done


async def framework(target: str, name: str) -> int:
    """Handle tasks of one type with a worker."""
    global progress  # noqa: PLW0603 - the handlers of a round use it
    chosen, tasks = (counted_app, PROCESS_TASKS) if name == "process" else (app, TASKS)
    progress = Progress(chosen, tasks)
    async with AsyncClient(target) as client:
        chosen.use(client)
        await chosen.run(
            only=[name], signals=False, async_slots=SLOTS, threads=THREADS, processes=PROCESSES
        )
    return progress.done


def main() -> None:
    """Measure each kind of handler, and print the table of costs per task."""
    parser = argparse.ArgumentParser(description="Measure what the worker framework costs.")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().serve:
        asyncio.run(serve())
        return
    spare_the_collector()
    command = [sys.executable, "-m", "bench.worker", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        target = f"127.0.0.1:{server.stdout.readline().strip()}"
        print(f"{'':<44} {'us CPU/task':>9} {'tasks/s':>12}")
        try:
            for slots in (SLOTS, THREADS):
                report(
                    f"client alone, {slots} slots",
                    lambda: asyncio.run(client_alone(target, slots)),  # noqa: B023 - called at once
                )
            report_async("client alone, batches", target, consume_batches)
            for name in ("coroutine", "thread", "process", "batch"):
                report(f"worker, {name}", lambda: asyncio.run(framework(target, name)))  # noqa: B023 - called at once
        finally:
            server.kill()


if __name__ == "__main__":
    main()
