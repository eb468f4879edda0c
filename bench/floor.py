"""A server with empty handlers: the best possible result of the gRPC library on this machine.

It uses the same library, the same generated messages and the same load generator as `bench`. A real
server cannot be faster without another library. Only the workloads `put` and `take` are meaningful.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

import grpc.aio
from google.protobuf.message import Message

from taskraft.v1 import cluster_service_pb2, task_pb2, task_service_pb2, tube_service_pb2

TASKS_MAX: Final = 1_000
"""Maximum number of tasks per response, as in the API."""

Request = TypeVar("Request", bound=Message)
Context: TypeAlias = object
"""The gRPC context, which the handlers do not use."""


def prepared_tasks(count: int) -> list[task_pb2.Task]:
    """Return tasks as a take returns them, with tokens from 1."""
    return [
        task_pb2.Task(
            tube="floor",
            id=number,
            spec=task_pb2.TaskSpec(payload=b"x" * 100),
            state=task_pb2.Task.TAKEN,
            token=number,
            attempt=1,
            created_ms=1_700_000_000_000,
        )
        for number in range(1, count + 1)
    ]


TASKS: Final = prepared_tasks(TASKS_MAX)


async def put_tasks(
    request: task_service_pb2.PutTasksRequest, _: Context
) -> task_service_pb2.PutTasksResponse:
    """Accept the tasks and number them from 1."""
    return task_service_pb2.PutTasksResponse(task_ids=range(1, len(request.tasks) + 1))


async def take_tasks(
    request: task_service_pb2.TakeTasksRequest, _: Context
) -> task_service_pb2.TakeTasksResponse:
    """Return the requested number of tasks, always the same tasks."""
    return task_service_pb2.TakeTasksResponse(tasks=TASKS[: request.tasks_max or 1])


async def settle_tasks(
    _request: task_service_pb2.SettleTasksRequest, _: Context
) -> task_service_pb2.SettleTasksResponse:
    """Answer that each settlement succeeded."""
    return task_service_pb2.SettleTasksResponse()


async def subscribe(
    requests: AsyncIterator[task_service_pb2.SubscribeRequest], _: Context
) -> AsyncIterator[task_service_pb2.SubscribeResponse]:
    """Answer credit with tasks and settlements with confirmations, message by message."""
    async for request in requests:
        answer = task_service_pb2.SubscribeResponse()
        if request.HasField("open"):
            answer.opened.session_id = "floor"
        if request.settlements:
            answer.settled.add(request_id=request.request_id)
        for start in range(0, request.credit.tasks, TASKS_MAX):
            answer.tasks.extend(TASKS[: request.credit.tasks - start])
        yield answer


async def create_tube(
    request: tube_service_pb2.CreateTubeRequest, _: Context
) -> tube_service_pb2.CreateTubeResponse:
    """Answer as if the tube was created."""
    return tube_service_pb2.CreateTubeResponse(tube=request.tube)


async def drop_tube(
    _request: tube_service_pb2.DropTubeRequest, _: Context
) -> tube_service_pb2.DropTubeResponse:
    """Answer as if the tube was dropped."""
    return tube_service_pb2.DropTubeResponse()


def unary(
    handler: Callable[[Request, Context], Awaitable[Message]], request: type[Request]
) -> grpc.RpcMethodHandler[Any, Any]:
    """Return the gRPC handler of a unary method."""
    return grpc.unary_unary_rpc_method_handler(
        handler,
        request_deserializer=request.FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )


async def serve(address: str) -> None:
    """Serve on ``address`` until SIGTERM or SIGINT; print the address when ready."""
    server = grpc.aio.server()
    bound = f"{address.rpartition(':')[0]}:{server.add_insecure_port(address)}"

    async def cluster_state(
        _request: cluster_service_pb2.GetClusterStateRequest, _: Context
    ) -> cluster_service_pb2.GetClusterStateResponse:
        return cluster_service_pb2.GetClusterStateResponse(leader_address=bound)

    methods = {
        "TaskService": {
            "PutTasks": unary(put_tasks, task_service_pb2.PutTasksRequest),
            "TakeTasks": unary(take_tasks, task_service_pb2.TakeTasksRequest),
            "SettleTasks": unary(settle_tasks, task_service_pb2.SettleTasksRequest),
            "Subscribe": grpc.stream_stream_rpc_method_handler(
                subscribe,
                request_deserializer=task_service_pb2.SubscribeRequest.FromString,
                response_serializer=task_service_pb2.SubscribeResponse.SerializeToString,
            ),
        },
        "TubeService": {
            "CreateTube": unary(create_tube, tube_service_pb2.CreateTubeRequest),
            "DropTube": unary(drop_tube, tube_service_pb2.DropTubeRequest),
        },
        "ClusterService": {
            "GetClusterState": unary(cluster_state, cluster_service_pb2.GetClusterStateRequest),
        },
    }
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(f"taskraft.v1.{name}", handlers)
            for name, handlers in methods.items()
        ]
    )
    await server.start()
    print(bound, flush=True)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await stopping.wait()
    await server.stop(grace=1)


def main() -> None:
    """Serve empty handlers until a signal arrives."""
    parser = argparse.ArgumentParser(description="Serve empty handlers.")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    asyncio.run(serve(parser.parse_args().listen))


if __name__ == "__main__":
    main()
