"""Record the tasks that clients put."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from taskraft._task import Task
from taskraft.v1 import task_pb2, task_service_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from taskraft_service.memory_node.memory_node import MemoryNode

_PUT: Final = "/taskraft.v1.TaskService/PutTasks"
_BATCH: Final = "/taskraft.v1.TaskService/ExecuteBatch"


class SentTasks:
    """The tasks that the node has accepted from clients, in order.

    A put that is repeated with its request_id counts once.
    """

    def __init__(self, node: MemoryNode) -> None:
        self.tasks: Final[list[Task]] = []
        self._known: set[tuple[str, int]] = set()
        self._wrap(node, _PUT, self._put)
        self._wrap(node, _BATCH, self._batch)

    @staticmethod
    def _wrap(node: MemoryNode, path: str, accepted: Callable[[bytes, bytes], None]) -> None:
        inner = node.handlers[path]

        async def recorded(raw: bytes, context: object) -> Any:  # noqa: ANN401 - bytes, as in gRPC
            answer = await inner(raw, context)
            accepted(raw, answer)
            return answer

        node.handlers[path] = recorded

    def _put(self, raw: bytes, answer: bytes) -> None:
        request = task_service_pb2.PutTasksRequest.FromString(raw)
        response = task_service_pb2.PutTasksResponse.FromString(answer)
        self._add(request, response.task_ids)

    def _batch(self, raw: bytes, answer: bytes) -> None:
        request = task_service_pb2.ExecuteBatchRequest.FromString(raw)
        response = task_service_pb2.ExecuteBatchResponse.FromString(answer)
        for operation, result in zip(request.operations, response.results, strict=True):
            if operation.HasField("put"):
                self._add(operation.put, result.put.task_ids)

    def _add(self, request: task_service_pb2.PutTasksRequest, task_ids: Sequence[int]) -> None:
        for spec, task_id in zip(request.tasks, task_ids, strict=True):
            if task_id and (request.tube, task_id) not in self._known:
                self._known.add((request.tube, task_id))
                self.tasks.append(Task(task_pb2.Task(tube=request.tube, id=task_id, spec=spec)))
