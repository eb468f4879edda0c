"""Record the tasks that clients put."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from taskraft._task import Task
from taskraft.v1 import task_pb2, task_service_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

_PUT: Final = "/taskraft.v1.TaskService/PutTasks"
_BATCH: Final = "/taskraft.v1.TaskService/ExecuteBatch"


class SentTasks:
    """The tasks that the cluster has accepted from clients, in order.

    A put that is repeated with its request_id counts once.
    """

    METHODS: Final = (_PUT, _BATCH)
    """The methods whose calls must be recorded with `accepted`."""

    def __init__(self) -> None:
        self.tasks: Final[list[Task]] = []
        self._known: set[tuple[str, int]] = set()

    def accepted(self, method: str, request: bytes, answer: bytes) -> None:
        """Record a call of one of `METHODS`, as it is on the network."""
        if method == _PUT:
            put = task_service_pb2.PutTasksRequest.FromString(request)
            self._add(put, task_service_pb2.PutTasksResponse.FromString(answer).task_ids)
            return
        batch = task_service_pb2.ExecuteBatchRequest.FromString(request)
        response = task_service_pb2.ExecuteBatchResponse.FromString(answer)
        for operation, result in zip(batch.operations, response.results, strict=True):
            if operation.HasField("put"):
                self._add(operation.put, result.put.task_ids)

    def _add(self, request: task_service_pb2.PutTasksRequest, task_ids: Sequence[int]) -> None:
        for spec, task_id in zip(request.tasks, task_ids, strict=True):
            if task_id and (request.tube, task_id) not in self._known:
                self._known.add((request.tube, task_id))
                self.tasks.append(Task(task_pb2.Task(tube=request.tube, id=task_id, spec=spec)))
