"""Measure the CPU cost of the Python client itself: `python -m bench.client_batches`.

A null server in another process answers at once, so the CPU time of this process is the client's
alone. Each row shows the best of several rounds, which other load on the machine affects least.
`--nodes` puts into three real nodes instead. The CPU time of a put, divided by the time of a put,
is then the share of the client in the round trip.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc

from taskraft import AsyncClient, Client
from taskraft.v1 import session_service_pb2, task_pb2, task_service_pb2
from taskraft.v1.session_service_pb2_grpc import (
    SessionServiceServicer,
    add_SessionServiceServicer_to_server,
)
from taskraft.v1.task_service_pb2_grpc import (
    TaskServiceServicer,
    TaskServiceStub,
    add_TaskServiceServicer_to_server,
)
from tools.local_cluster import LocalCluster

if TYPE_CHECKING:
    from taskraft.v1.task_service_pb2_grpc import TaskServiceAsyncStub

PAYLOAD: Final = b"x" * 200
ROUNDS: Final = 3
TASKS: Final = 50_000
SINGLE_TASKS: Final = 5_000
CREDIT: Final = 2_000
FRAME_TASKS: Final = 500
CALLERS: Final = 100
CLIENTS: Final = 32
"""Number of requests at the same time in workload (b) of the benchmarks."""


class NullServer(TaskServiceServicer, SessionServiceServicer):
    """Answers every call without doing any work."""

    def __init__(self) -> None:
        self.spec: Final = task_pb2.TaskSpec(payload=PAYLOAD, content_type="text/plain")
        """The task that is delivered again and again."""

    async def PutTasks(  # noqa: N802 - gRPC methods are PascalCase
        self, request: task_service_pb2.PutTasksRequest, context: object
    ) -> task_service_pb2.PutTasksResponse:
        """Answer with one id per task."""
        return task_service_pb2.PutTasksResponse(task_ids=range(1, len(request.tasks) + 1))

    async def CloseSession(  # noqa: N802 - gRPC methods are PascalCase
        self, request: session_service_pb2.CloseSessionRequest, context: object
    ) -> session_service_pb2.CloseSessionResponse:
        """Answer without closing anything."""
        return session_service_pb2.CloseSessionResponse()

    async def Subscribe(  # noqa: N802 - gRPC methods are PascalCase
        self, requests: AsyncIterator[task_service_pb2.SubscribeRequest], context: object
    ) -> AsyncIterator[task_service_pb2.SubscribeResponse]:
        """Send as many tasks as the credit allows, and accept all settlements."""
        async for response in self.answers(requests):
            yield response

    async def answers(
        self, requests: AsyncIterator[task_service_pb2.SubscribeRequest]
    ) -> AsyncIterator[task_service_pb2.SubscribeResponse]:
        """Answer the messages of a subscription."""
        opened = task_service_pb2.SubscribeResponse.Opened(session_id="null")
        yield task_service_pb2.SubscribeResponse(opened=opened)
        token = itertools.count(1)
        credit = 0
        is_paused = False
        async for request in requests:
            if request.request_id:
                settled = task_service_pb2.SubscribeResponse.Settled(request_id=request.request_id)
                yield task_service_pb2.SubscribeResponse(settled=[settled])
            if request.HasField("filter"):
                is_paused = request.filter.none
            credit += request.credit.tasks
            while credit and not is_paused:
                response = task_service_pb2.SubscribeResponse()
                count = min(FRAME_TASKS, credit)
                credit -= count
                for _ in range(count):
                    number = next(token)
                    response.tasks.add(
                        tube="bench",
                        id=number,
                        spec=self.spec,
                        state=3,
                        token=number,
                        attempt=1,
                        created_ms=1_800_000_000_000,
                        since_ms=1_800_000_000_000,
                    )
                yield response


async def serve() -> None:
    """Serve until killed; print the port."""
    server = grpc.aio.server()
    null = NullServer()  # type: ignore[abstract]  # the other methods are never called
    add_TaskServiceServicer_to_server(null, server)
    add_SessionServiceServicer_to_server(null, server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


async def put_many(client: AsyncClient) -> int:
    """Put an iterable of tasks."""
    return len(await client.tube("bench").put_many(itertools.repeat(PAYLOAD, TASKS)))


async def put_concurrently(client: AsyncClient, callers: int = CALLERS) -> int:
    """Put from many coroutines, one task per call."""
    tube = client.tube("bench")

    async def caller() -> None:
        for _ in range(SINGLE_TASKS // callers):
            await tube.put(PAYLOAD)

    await asyncio.gather(*(caller() for _ in range(callers)))
    return SINGLE_TASKS // callers * callers


async def put_by_stub(target: str, callers: int) -> int:
    """Put with the generated stub, one task and one call at a time in each of some coroutines."""
    async with grpc.aio.insecure_channel(target) as channel:
        stub: TaskServiceAsyncStub = TaskServiceStub(channel)

        async def caller() -> None:
            for _ in range(SINGLE_TASKS // callers):
                tasks = [task_pb2.TaskSpec(payload=PAYLOAD)]
                request = task_service_pb2.PutTasksRequest(
                    tube="bench", request_id=uuid.uuid4().hex, tasks=tasks
                )
                await stub.PutTasks(request, timeout=30.0)

        await asyncio.gather(*(caller() for _ in range(callers)))
    return SINGLE_TASKS // callers * callers


def run_stub(target: str, callers: int) -> int:
    """Put with the generated stub from this thread."""
    return asyncio.run(put_by_stub(target, callers))


async def put_one_by_one(client: AsyncClient) -> int:
    """Put tasks one after another from one coroutine."""
    tube = client.tube("bench")
    for _ in range(SINGLE_TASKS):
        await tube.put(PAYLOAD)
    return SINGLE_TASKS


async def consume_batches(client: AsyncClient) -> int:
    """Take and acknowledge lists of tasks."""
    done = 0
    async with client.subscribe("bench", credit=CREDIT) as tasks:
        async for batch in tasks.batches():
            done += sum(1 for task in batch if task.payload)
            await tasks.ack(batch)
            if done >= TASKS:
                return done
    return done


async def consume_concurrently(client: AsyncClient) -> int:
    """Take single tasks, and settle each in one of many coroutines."""
    done = 0
    async with client.subscribe("bench", credit=CALLERS) as tasks:

        async def consumer() -> None:
            nonlocal done
            while done < SINGLE_TASKS:
                async with await anext(tasks):
                    done += 1

        await asyncio.gather(*(consumer() for _ in range(CALLERS)))
    return done


def put_many_blocking(client: Client) -> int:
    """Put an iterable of tasks from a thread."""
    return len(client.tube("bench").put_many(itertools.repeat(PAYLOAD, TASKS)))


def put_one_by_one_blocking(client: Client) -> int:
    """Put tasks one after another from one thread."""
    tube = client.tube("bench")
    for _ in range(SINGLE_TASKS):
        tube.put(PAYLOAD)
    return SINGLE_TASKS


def consume_batches_blocking(client: Client) -> int:
    """Take and acknowledge lists of tasks in a thread."""
    done = 0
    with client.subscribe("bench", credit=CREDIT) as tasks:
        for batch in tasks.batches():
            done += sum(1 for task in batch if task.payload)
            tasks.ack(batch)
            if done >= TASKS:
                return done
    return done


def report(name: str, measure: Callable[[], int]) -> None:
    """Run a measurement several times and print the best round."""
    best_cpu = best_wall = float("inf")
    for _ in range(ROUNDS):
        cpu, wall = time.process_time(), time.perf_counter()
        tasks = measure()
        best_cpu = min(best_cpu, (time.process_time() - cpu) / tasks)
        best_wall = min(best_wall, (time.perf_counter() - wall) / tasks)
    print(f"{name:<44} {best_cpu * 1e6:9.1f} {1 / best_wall:12,.0f}", flush=True)


def report_async(name: str, target: str, measure: Callable[[AsyncClient], Awaitable[int]]) -> None:
    """Run a measurement of the asyncio client."""

    async def run() -> int:
        async with AsyncClient(target) as client:
            return await measure(client)

    report(name, lambda: asyncio.run(run()))


def report_blocking(name: str, target: str, measure: Callable[[Client], int]) -> None:
    """Run a measurement of the blocking client."""

    def run() -> int:
        with Client(target) as client:
            return measure(client)

    report(name, run)


def report_shares() -> None:
    """Measure single puts into three nodes."""

    async def create(target: str) -> None:
        async with AsyncClient(target) as client:
            await client.create_tube("bench")

    with tempfile.TemporaryDirectory() as folder, LocalCluster(3, Path(folder)) as cluster:
        asyncio.run(create(cluster.target))
        report_async("AsyncClient put, one after another", cluster.target, put_one_by_one)
        report_async(
            f"AsyncClient put, {CLIENTS} coroutines",
            cluster.target,
            lambda client: put_concurrently(client, CLIENTS),
        )


def main() -> None:
    """Measure the CPU cost of each kind of call, and print the table."""
    parser = argparse.ArgumentParser(description="Measure what the Python client itself costs.")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--nodes", action="store_true", help="put into three real nodes")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    if options.nodes:
        print(f"{'':<44} {'us CPU/task':>9} {'tasks/s':>12}")
        report_shares()
        return
    command = [sys.executable, "-m", "bench.client_batches", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        target = f"127.0.0.1:{server.stdout.readline().strip()}"
        print(f"{'':<44} {'us CPU/task':>9} {'tasks/s':>12}")
        try:
            report_async("AsyncClient put_many", target, put_many)
            report_async(f"AsyncClient put, {CALLERS} coroutines", target, put_concurrently)
            report_async(
                f"AsyncClient put, {CLIENTS} coroutines",
                target,
                lambda client: put_concurrently(client, CLIENTS),
            )
            report_async("AsyncClient put, one after another", target, put_one_by_one)
            for callers in (CLIENTS, 1):
                report(
                    f"generated stub put, coroutines: {callers}",
                    partial(run_stub, target, callers),
                )
            report_async("AsyncClient subscribe, batches + ack", target, consume_batches)
            report_async(
                f"AsyncClient subscribe + ack, {CALLERS} coroutines", target, consume_concurrently
            )
            report_blocking("Client put_many", target, put_many_blocking)
            report_blocking("Client put, one after another", target, put_one_by_one_blocking)
            report_blocking("Client subscribe, batches + ack", target, consume_batches_blocking)
        finally:
            server.kill()


if __name__ == "__main__":
    main()
