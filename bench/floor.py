"""Answer the contract's hot calls without a queue behind them: what gRPC alone allows on this machine.

The floor under every number of `bench`: the same library, the same generated stubs and the same load
generator, but handlers that do nothing. A server cannot be faster than this without leaving the
library. Only the workloads `put` and `take` mean something against it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import Final, TypeAlias

import grpc.aio
from taskraft.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    task_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
    tube_service_pb2,
    tube_service_pb2_grpc,
)

TASKS_MAX: Final = 1_000
"""Most tasks in one answer, as in the contract."""

PAYLOAD: Final = b"x" * 100

TakeContext: TypeAlias = grpc.aio.ServicerContext[
    task_service_pb2.TakeTasksRequest, task_service_pb2.TakeTasksResponse
]


def prepared_tasks(count: int) -> list[task_pb2.Task]:
    """Return tasks as a queue would hand them out, with tokens from 1."""
    return [
        task_pb2.Task(
            tube="floor",
            id=number,
            spec=task_pb2.TaskSpec(payload=PAYLOAD),
            state=task_pb2.Task.TAKEN,
            token=number,
            attempt=1,
            created_ms=1_700_000_000_000,
        )
        for number in range(1, count + 1)
    ]


class EmptyTasks(task_service_pb2_grpc.TaskServiceServicer):
    """Accept every put, hand out the same tasks for ever, confirm every settlement."""

    def __init__(self) -> None:
        self._tasks: Final = prepared_tasks(TASKS_MAX)

    async def PutTasks(
        self,
        request: task_service_pb2.PutTasksRequest,
        context: grpc.aio.ServicerContext[
            task_service_pb2.PutTasksRequest, task_service_pb2.PutTasksResponse
        ],
    ) -> task_service_pb2.PutTasksResponse:
        """Answer with ids from 1."""
        return task_service_pb2.PutTasksResponse(task_ids=range(1, len(request.tasks) + 1))

    async def TakeTasks(
        self, request: task_service_pb2.TakeTasksRequest, context: TakeContext
    ) -> task_service_pb2.TakeTasksResponse:
        """Answer with as many tasks as asked for."""
        return task_service_pb2.TakeTasksResponse(tasks=self._tasks[: request.tasks_max or 1])

    async def SettleTasks(
        self,
        request: task_service_pb2.SettleTasksRequest,
        context: grpc.aio.ServicerContext[
            task_service_pb2.SettleTasksRequest, task_service_pb2.SettleTasksResponse
        ],
    ) -> task_service_pb2.SettleTasksResponse:
        """Confirm."""
        return task_service_pb2.SettleTasksResponse()

    async def Subscribe(
        self,
        request_iterator: AsyncIterator[task_service_pb2.SubscribeRequest],
        context: grpc.aio.ServicerContext[
            task_service_pb2.SubscribeRequest, task_service_pb2.SubscribeResponse
        ],
    ) -> AsyncIterator[task_service_pb2.SubscribeResponse]:
        """Answer credit with tasks, and settlements with their confirmation, in one message."""
        async for request in request_iterator:
            answer = task_service_pb2.SubscribeResponse()
            if request.HasField("open"):
                answer.opened.session_id = "floor"
            if request.settlements:
                answer.settled.add(request_id=request.request_id)
            for start in range(0, request.credit.tasks, TASKS_MAX):
                answer.tasks.extend(self._tasks[: request.credit.tasks - start])
            yield answer


class EmptyTubes(tube_service_pb2_grpc.TubeServiceServicer):
    """Pretend to create and drop tubes."""

    async def CreateTube(
        self,
        request: tube_service_pb2.CreateTubeRequest,
        context: grpc.aio.ServicerContext[
            tube_service_pb2.CreateTubeRequest, tube_service_pb2.CreateTubeResponse
        ],
    ) -> tube_service_pb2.CreateTubeResponse:
        """Answer with the tube of the request."""
        return tube_service_pb2.CreateTubeResponse(tube=request.tube)

    async def DropTube(
        self,
        request: tube_service_pb2.DropTubeRequest,
        context: grpc.aio.ServicerContext[
            tube_service_pb2.DropTubeRequest, tube_service_pb2.DropTubeResponse
        ],
    ) -> tube_service_pb2.DropTubeResponse:
        """Confirm."""
        return tube_service_pb2.DropTubeResponse()


class LonelyCluster(cluster_service_pb2_grpc.ClusterServiceServicer):
    """Be the leader of a cluster of one."""

    def __init__(self, address: str) -> None:
        self._address: Final = address

    async def GetClusterState(
        self,
        request: cluster_service_pb2.GetClusterStateRequest,
        context: grpc.aio.ServicerContext[
            cluster_service_pb2.GetClusterStateRequest,
            cluster_service_pb2.GetClusterStateResponse,
        ],
    ) -> cluster_service_pb2.GetClusterStateResponse:
        """Name ourselves as the leader."""
        return cluster_service_pb2.GetClusterStateResponse(leader_address=self._address)


async def serve(address: str) -> None:
    """Serve on ``address`` until SIGTERM or SIGINT; print the address when calls are answered."""
    server = grpc.aio.server()
    port = server.add_insecure_port(address)
    bound = f"{address.rpartition(':')[0]}:{port}"
    task_service_pb2_grpc.add_TaskServiceServicer_to_server(EmptyTasks(), server)
    tube_service_pb2_grpc.add_TubeServiceServicer_to_server(EmptyTubes(), server)
    cluster_service_pb2_grpc.add_ClusterServiceServicer_to_server(LonelyCluster(bound), server)
    await server.start()
    print(bound, flush=True)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await stopping.wait()
    await server.stop(grace=1)


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description="Serve empty handlers.")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args().listen))


if __name__ == "__main__":
    main()
