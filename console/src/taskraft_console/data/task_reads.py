"""Questions about tasks: searches, one task with its past, and the tasks around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from taskraft_console.data.questions import LIST_SECONDS, TASK_SECONDS, Questions
from taskraft_console.data.shared_reads import Reading, SharedReads

if TYPE_CHECKING:
    from taskraft import AsyncClient, Task, TaskPage
    from taskraft.v1.feed_service_pb2 import GetTaskEventsResponse
    from taskraft.v1.task_service_pb2 import GetTaskGraphResponse

GRAPH_TASKS_MAX: Final = 60
"""Maximum number of tasks in the graph of a task."""

PAYLOADS_MAX: Final = 4
"""Maximum number of kept answers with a payload and a result, of up to 16 MiB each."""


class TaskReads(Questions):
    """Asks a cluster about tasks."""

    def __init__(self, client: AsyncClient, reads: SharedReads, timeout_seconds: float) -> None:
        super().__init__(client, reads, timeout_seconds)
        self._payloads = SharedReads(PAYLOADS_MAX)

    def forget(self) -> None:
        """Forget all answers, so that the next page shows the effect of a change."""
        super().forget()
        self._payloads.forget()

    async def tasks(
        self, tube: str, where: str, *, order: str = "", size: int = 50, token: str = ""
    ) -> Reading[TaskPage]:
        """Return one page of the tasks of a tube, without payloads."""
        return await self.reads.read(
            ("tasks", tube, where, order, size, token),
            TASK_SECONDS,
            lambda: self.client.tube(tube).page(
                where,
                order_by=order,
                size=size,
                token=token,
                payload=False,
                timeout=self._timeout,
            ),
        )

    async def task(self, tube: str, task_id: int, *, payload: bool) -> Reading[Task]:
        """Return one task.

        Raises:
            TaskNotFound: the task does not exist.
        """
        reads = self._payloads if payload else self.reads
        return await reads.read(
            ("task", tube, task_id, payload),
            TASK_SECONDS,
            lambda: self.client.tube(tube).peek(task_id, payload=payload, timeout=self._timeout),
        )

    async def task_graph(self, tube: str, task_id: int) -> Reading[GetTaskGraphResponse]:
        """Return the tasks that a task waits for and that wait for the task, by distance.

        Raises:
            TaskNotFound: the task does not exist.
        """
        return await self.reads.read(
            ("task graph", tube, task_id),
            LIST_SECONDS,
            lambda: self.client.tube(tube).graph(
                task_id, tasks_max=GRAPH_TASKS_MAX, timeout=self._timeout
            ),
        )

    async def events(self, tube: str, task_id: int) -> Reading[GetTaskEventsResponse]:
        """Return the transitions of a task, newest first.

        Raises:
            TaskNotFound: the task does not exist.
        """
        return await self.reads.read(
            ("events", tube, task_id),
            TASK_SECONDS,
            lambda: self.client.tube(tube).events(task_id, timeout=self._timeout),
        )
