"""Look at and change chosen tasks of one tube, with asyncio."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    Unpack,
    get_args,
)

from taskraft import _settlement, errors
from taskraft._arguments import choice, text
from taskraft._async_waits import AsyncWaits
from taskraft._durations import Duration, milliseconds
from taskraft._error_translation import raise_refused_items, refused_items
from taskraft._leader_caller import new_request_id
from taskraft._message_fields import set_field
from taskraft._task import Task
from taskraft._task_selection import (
    Key,
    Keys,
    TaskChanges,
    TaskSelection,
    count_of,
    name_selected_task,
    selector_of,
    update_of,
)
from taskraft.v1 import task_pb2, task_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from taskraft._leader_caller import AsyncUnaryMethod
    from taskraft._node_pool import NodeStubs
    from taskraft._settlement import Reason
    from taskraft.v1 import error_pb2

State: TypeAlias = Literal["ready", "delayed", "buried", "done", "zombie"]
"""A state that an administrator may move a task to."""
STATES: Final = {state: task_pb2.Task.State.Value(state.upper()) for state in get_args(State)}


class Cancelled(NamedTuple):
    """What a cancellation did."""

    asked: int
    """Holders that were asked to stop."""
    removed: int
    """Tasks that nobody held, and that are gone."""


class _Change(Protocol):
    """A request that changes chosen tasks."""

    request_id: str

    @property
    def selector(self) -> task_pb2.TaskSelector:
        """Which tasks."""
        ...


class _Changed(Protocol):
    """An answer to one."""

    @property
    def errors(self) -> Iterable[error_pb2.ItemError]:
        """The refused items."""
        ...

    @property
    def continue_after_id(self) -> int:
        """Where a filter goes on; 0 at the end."""
        ...


Change = TypeVar("Change", bound=_Change)
Changed = TypeVar("Changed", bound=_Changed)


class AsyncSelectedTasks(AsyncWaits):
    """The part of a tube's handle that is about chosen tasks.

    Tasks are chosen by id, by `Keys`, or by `Where`. A filter that finds many is followed in steps
    until its end; each step is a call of its own.
    """

    # ---------------------------------------------------------------------------------- look

    async def peek(
        self, task_id: int | None = None, *, key: Key = (), timeout: Duration | None = None
    ) -> Task:
        """Return a task, by id or unique key, without changing it.

        Raises:
            TaskNotFound: There is none, or not any more.
        """
        if (task_id is None) is (not key):
            raise TypeError("peek needs a task_id or a key")
        request = task_service_pb2.GetTasksRequest(
            tube=self.name, selector=selector_of(Keys(key) if task_id is None else task_id)
        )
        response = await self._connection.call(
            lambda node: node.tasks.GetTasks, request, timeout=timeout
        )
        for item, error in refused_items(response.errors).items():
            name_selected_task(error, self.name, request.selector, item)
            raise error
        return Task(response.tasks[0])

    # -------------------------------------------------------------------------------- change

    async def kick(
        self,
        count: int = 1,
        *,
        ids: TaskSelection | None = None,
        delay: Duration = 0,
        timeout: Duration | None = None,
    ) -> int:
        """Make buried tasks ready again and return how many: the first `count`, or chosen ones."""
        request = task_service_pb2.KickTasksRequest(
            tube=self.name, delay_ms=milliseconds(delay, "delay")
        )
        if ids is None:
            set_field(request, "count", count)
        else:
            request.selector.CopyFrom(selector_of(ids))
        answers = await self._change(lambda node: node.tasks.KickTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def bury(
        self, tasks: TaskSelection, *, reason: Reason = "", timeout: Duration | None = None
    ) -> int:
        """Take tasks that nobody holds out of circulation; return how many."""
        request = task_service_pb2.BuryTasksRequest(
            tube=self.name, selector=selector_of(tasks), failure=_settlement.failure_of(reason)
        )
        answers = await self._change(lambda node: node.tasks.BuryTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def delete(self, tasks: TaskSelection, *, timeout: Duration | None = None) -> int:
        """Remove tasks in any state and return how many."""
        request = task_service_pb2.DeleteTasksRequest(tube=self.name, selector=selector_of(tasks))
        answers = await self._change(lambda node: node.tasks.DeleteTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def update(
        self,
        tasks: TaskSelection,
        *,
        timeout: Duration | None = None,
        **changes: Unpack[TaskChanges],
    ) -> int:
        """Change held, ready, delayed or buried tasks and return how many; see `TaskChanges`."""
        request = task_service_pb2.UpdateTasksRequest(
            tube=self.name, selector=selector_of(tasks), update=update_of(changes)
        )
        answers = await self._change(lambda node: node.tasks.UpdateTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def snatch(
        self, tasks: TaskSelection, *, delay: Duration = 0, timeout: Duration | None = None
    ) -> int:
        """Take tasks from their holders, whose leases become stale; return how many."""
        request = task_service_pb2.SnatchTasksRequest(
            tube=self.name, selector=selector_of(tasks), delay_ms=milliseconds(delay, "delay")
        )
        answers = await self._change(lambda node: node.tasks.SnatchTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def restart(
        self, tasks: TaskSelection, *, delay: Duration = 0, timeout: Duration | None = None
    ) -> int:
        """Begin delayed, buried and finished tasks anew, attempts reset; return how many."""
        request = task_service_pb2.RestartTasksRequest(
            tube=self.name, selector=selector_of(tasks), delay_ms=milliseconds(delay, "delay")
        )
        answers = await self._change(lambda node: node.tasks.RestartTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def switch(
        self,
        tasks: TaskSelection,
        state: State,
        *,
        duration: Duration = 0,
        timeout: Duration | None = None,
    ) -> int:
        """Move tasks that nobody holds to a state; return how many.

        Args:
            tasks: Which.
            state: Where to.
            duration: With "delayed": hidden for so long. With "zombie": kept for so long.
            timeout: How long to try.
        """
        request = task_service_pb2.SwitchTasksRequest(
            tube=self.name,
            selector=selector_of(tasks),
            state=task_pb2.Task.State.ValueType(choice("state", state, STATES)),
            duration_ms=milliseconds(duration, "duration"),
        )
        answers = await self._change(lambda node: node.tasks.SwitchTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def cancel(self, tasks: TaskSelection, *, timeout: Duration | None = None) -> Cancelled:
        """Ask the holders of tasks to stop, and remove those that nobody holds."""
        request = task_service_pb2.CancelTasksRequest(tube=self.name, selector=selector_of(tasks))
        answers = await self._change(lambda node: node.tasks.CancelTasks, request, timeout)
        return Cancelled(
            sum(answer.asked for answer in answers), sum(answer.removed for answer in answers)
        )

    async def _change(
        self,
        method: Callable[[NodeStubs], AsyncUnaryMethod[Change, Changed]],
        request: Change,
        timeout: Duration | None,
    ) -> list[Changed]:
        """Make the call, and with a filter those that follow; return all answers.

        Raises:
            TaskraftError: The only task was refused.
            ItemsRefused: Some of several were; the others were changed.
        """
        answers: list[Changed] = []
        refused: dict[int, errors.TaskraftError] = {}
        while True:
            request.request_id = new_request_id()
            answer = await self._connection.call(method, request, timeout=timeout)
            answers.append(answer)
            for error in refused_items(answer.errors).values():
                refused[len(refused)] = error  # with a filter, in order of the ids
            if not answer.continue_after_id:
                break
            request.selector.after_id = answer.continue_after_id
        if request.selector.filter and refused:
            raise errors.ItemsRefused(refused, items=len(refused))
        refused = refused_items(answers[0].errors)
        for item, error in refused.items():
            name_selected_task(error, self.name, request.selector, item)
        raise_refused_items(refused, count_of(request.selector))
        return answers

    async def list(
        self,
        filter: str = "",
        *,
        order_by: str = "",
        timeout: Duration | None = None,
    ) -> AsyncIterator[Task]:
        """Yield the tasks that a filter chooses, page by page, as they were at the first page."""
        request = task_service_pb2.ListTasksRequest(
            tube=self.name, filter=text("filter", filter), order_by=text("order_by", order_by)
        )
        async for page in self._connection.pages(
            lambda node: node.tasks.ListTasks, request, timeout=timeout
        ):
            for message in page.tasks:
                yield Task(message)
