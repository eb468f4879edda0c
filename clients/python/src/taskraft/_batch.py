"""Collect operations that the server executes atomically."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, Unpack

from taskraft import _settlement
from taskraft._arguments import text
from taskraft._durations import Duration, milliseconds
from taskraft._leader_caller import chosen_request_id
from taskraft._task import Task
from taskraft._task_selection import NamedTasks, TaskChanges, selector_of, update_of
from taskraft.v1 import task_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from taskraft._payload import Payload
    from taskraft._planned_task import PlannedTask
    from taskraft._settlement import Keep, Reason, ReleaseOptions, Settlement
    from taskraft.v1 import task_pb2


class Batch:
    """Up to 100 operations on any tubes, executed in order, all or none.

        batch = Batch().ack(order).put(client.tube("invoices").task({"order": 7}))
        client.execute(batch)

    A batch sends nothing before `Client.execute`. Each task may be named once, by id, key or lease.
    Consecutive puts into one tube count as one operation. The methods return the batch.
    """

    def __init__(self) -> None:
        self._operations: list[pb.BatchOperation] = []
        self.settled: Final[list[tuple[str, Task]]] = []
        """Action and task of each settlement that was given as a `Task`."""
        self._planned: list[PlannedTask] = []
        """Tasks to put, in order; kept so that their `id()` stays unique."""
        self._items: dict[int, int] = {}
        """Position in `_planned` by `id()` of the task; dependencies refer to these positions."""

    def __len__(self) -> int:
        return len(self._operations)

    def put(self, *tasks: PlannedTask) -> Self:
        """Put tasks made by `Tube.task`; they may depend on tasks that this batch puts earlier.

        Raises:
            ValueError: a task depends on an unput task that this batch does not put earlier.
        """
        for task in tasks:
            self._put(task, [self._item_of(before) for before in task.after])
        return self

    def chain(self, *tasks: PlannedTask) -> Self:
        """Put tasks; each task also depends on the task before it."""
        for place, task in enumerate(tasks):
            items = {self._item_of(before): None for before in task.after}
            if place > 0:
                items[len(self._planned) - 1] = None
            self._put(task, items)
        return self

    def _item_of(self, task: PlannedTask) -> int:
        """Return the position of a task among the tasks to put."""
        item = self._items.get(id(task))
        if item is None:
            raise ValueError("a task depends on a task that this batch does not put before it")
        return item

    def _put(self, task: PlannedTask, items: Iterable[int]) -> None:
        last = self._operations[-1] if self._operations else pb.BatchOperation()
        if last.WhichOneof("operation") != "put" or last.put.tube != task.tube:
            last = pb.BatchOperation(put=pb.PutTasksRequest(tube=task.tube))
            self._operations.append(last)
        spec = last.put.tasks.add()
        spec.CopyFrom(task.spec)
        for item in items:
            spec.depends_on.add(item=item)
        self._items[id(task)] = len(self._planned)
        self._planned.append(task)

    def ack(
        self,
        task: Task | int,
        result: Payload = None,
        *,
        keep: Keep | None = None,
        retain: Duration | None = None,
    ) -> Self:
        """Acknowledge a leased task, given as a `Task` or by its token."""
        return self.settle(task, _settlement.ack(result, keep=keep, retain=retain))

    def release(
        self,
        task: Task | int,
        delay: Duration | None = None,
        **options: Unpack[ReleaseOptions],
    ) -> Self:
        """Release a leased task; see `ReleaseOptions`."""
        return self.settle(task, _settlement.release(delay, **options))

    def reject(self, task: Task | int, reason: Reason = "") -> Self:
        """Reject a leased task: move it to the dead-letter tube if there is one, else bury it."""
        return self.settle(task, _settlement.reject(reason))

    def settle(self, task: Task | int, action: Settlement) -> Self:
        """Settle a leased task with any action."""
        settlement = pb.Settlement()
        settlement.CopyFrom(action)
        settlement.tokens.append(task.token if isinstance(task, Task) else task)
        self._add(settle=pb.SettleTasksRequest(settlements=[settlement]))
        if isinstance(task, Task):
            self.settled.append((str(action.WhichOneof("action")), task))
        return self

    def kick(self, tube: str, tasks: NamedTasks, *, delay: Duration = 0) -> Self:
        """Make buried tasks READY again."""
        request = pb.KickTasksRequest(
            tube=text("tube", tube),
            selector=selector_of(tasks),
            delay_ms=milliseconds(delay, "delay"),
        )
        return self._add(kick=request)

    def bury(
        self, tube: str, tasks: NamedTasks, *, reason: Reason | task_pb2.Failure | None = ""
    ) -> Self:
        """Bury tasks that have no holder; `reason` None: the tasks get no failure."""
        request = pb.BuryTasksRequest(
            tube=text("tube", tube),
            selector=selector_of(tasks),
            failure=None if reason is None else _settlement.failure_of(reason),
        )
        return self._add(bury=request)

    def delete(self, tube: str, tasks: NamedTasks) -> Self:
        """Remove tasks in any state."""
        return self._add(
            delete=pb.DeleteTasksRequest(tube=text("tube", tube), selector=selector_of(tasks))
        )

    def update(self, tube: str, tasks: NamedTasks, **changes: Unpack[TaskChanges]) -> Self:
        """Change HELD, READY, DELAYED or BURIED tasks."""
        request = pb.UpdateTasksRequest(
            tube=text("tube", tube), selector=selector_of(tasks), update=update_of(changes)
        )
        return self._add(update=request)

    def move(self, tube: str, tasks: NamedTasks, to: str, *, delay: Duration | None = None) -> Self:
        """Move READY, DELAYED and BURIED tasks to another tube; see `Tube.move`."""
        request = pb.MoveTasksRequest(
            tube=text("tube", tube), selector=selector_of(tasks), move_to=to
        )
        if delay is not None:
            request.delay_ms = milliseconds(delay, "delay")
        return self._add(move=request)

    def _add(
        self,
        *,
        settle: pb.SettleTasksRequest | None = None,
        kick: pb.KickTasksRequest | None = None,
        bury: pb.BuryTasksRequest | None = None,
        delete: pb.DeleteTasksRequest | None = None,
        update: pb.UpdateTasksRequest | None = None,
        move: pb.MoveTasksRequest | None = None,
    ) -> Self:
        self._operations.append(
            pb.BatchOperation(
                settle=settle, kick=kick, bury=bury, delete=delete, update=update, move=move
            )
        )
        return self

    def request(self, request_id: str | None = None) -> pb.ExecuteBatchRequest:
        """Return the request for this batch; None: with a new request_id."""
        return pb.ExecuteBatchRequest(
            request_id=chosen_request_id(request_id), operations=self._operations
        )

    def done(self) -> None:
        """Mark the tasks that the batch has settled."""
        for _, task in self.settled:
            task.note_settled()
