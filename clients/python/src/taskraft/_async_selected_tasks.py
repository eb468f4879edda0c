"""Methods of `AsyncTube` that read and change selected tasks."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

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
from taskraft._arguments import choice, flag, text, whole_number
from taskraft._async_waits import AsyncWaits
from taskraft._durations import Duration, milliseconds
from taskraft._error_translation import raise_refused_items, refused_items
from taskraft._leader_caller import new_request_id
from taskraft._message_fields import consistency_of, set_field
from taskraft._request_batcher import MESSAGE_ITEMS_MAX
from taskraft._task import Task, TaskPage
from taskraft._task_selection import (
    Key,
    Keys,
    TaskChanges,
    TaskSelection,
    Where,
    name_selected_task,
    selector_of,
    update_of,
)
from taskraft.v1 import feed_service_pb2, task_pb2, task_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from taskraft._leader_caller import AsyncUnaryMethod
    from taskraft._node_pool import NodeStubs
    from taskraft._settlement import Reason
    from taskraft.v1 import error_pb2

State: TypeAlias = Literal["ready", "delayed", "buried", "done", "zombie"]
"""State to which an administrator may move a task."""
STATES: Final = {state: task_pb2.Task.State.Value(state.upper()) for state in get_args(State)}


class Kicked(int):
    """Number of kicked tasks."""

    buried: int
    """Number of tasks that remain BURIED in the tube."""

    def __new__(cls, count: int, buried: int) -> Kicked:
        """Create the number ``count`` with the attribute ``buried``."""
        kicked = super().__new__(cls, count)
        kicked.buried = buried
        return kicked


class Cancelled(NamedTuple):
    """Result of a cancellation."""

    asked: int
    """Number of holders that were asked to stop."""
    removed: int
    """Number of tasks without a holder, which were removed."""


class _Change(Protocol):
    """A request that changes selected tasks."""

    request_id: str

    @property
    def selector(self) -> task_pb2.TaskSelector:
        """Selector of the tasks to change."""
        ...


class _Changed(Protocol):
    """The response to a `_Change`."""

    @property
    def errors(self) -> Iterable[error_pb2.ItemError]:
        """Errors of the refused items."""
        ...

    @property
    def continue_after_id(self) -> int:
        """Task id after which a filter continues; 0 at the end."""
        ...


Change = TypeVar("Change", bound=_Change)
Changed = TypeVar("Changed", bound=_Changed)


def _changed_count(answer: object) -> int:
    """Return the number of tasks that a call has changed."""
    if isinstance(answer, task_service_pb2.CancelTasksResponse):
        return answer.asked + answer.removed
    count: int = getattr(answer, "count", 0)
    return count


class AsyncSelectedTasks(AsyncWaits):
    """The methods of `AsyncTube` that work on selected tasks.

    Tasks are selected by id, by `Keys`, or by `Where`. A filter that matches many tasks is
    processed in several calls, one after another.
    """

    # ---------------------------------------------------------------------------------- look

    async def peek(
        self,
        task_id: int | None = None,
        *,
        key: Key = (),
        payload: bool = True,
        timeout: Duration | None = None,
    ) -> Task:
        """Return a task by id or unique key without changing it.

        Args:
            task_id: id of the task.
            key: unique key of the task, instead of the id.
            payload: False: leave the payload out.
            timeout: time limit of the call, retries included.

        Raises:
            TaskNotFound: the task does not exist or was removed.
        """
        if (task_id is None) is (not key):
            raise TypeError("peek needs either task_id or key, and not both")
        request = task_service_pb2.GetTasksRequest(
            tube=self.name,
            selector=selector_of(Keys(key) if task_id is None else task_id),
            payload_omit=not flag("payload", payload),
        )
        response = await self._connection.call(
            lambda node: node.tasks.GetTasks, request, timeout=timeout
        )
        for item, error in refused_items(response.errors).items():
            name_selected_task(error, self.name, request.selector, item)
            raise error
        return Task(response.tasks[0])

    async def events(
        self,
        task_id: int,
        *,
        events_max: int = 0,
        before_ms: int = 0,
        timeout: Duration | None = None,
    ) -> feed_service_pb2.GetTaskEventsResponse:
        """Return the state transitions of a task from the change feed, newest first.

        The answer has the transitions of a task that was removed too, if its last event is among
        the 64 000 newest events of its partition.

        Args:
            task_id: id of the task.
            events_max: maximum number of events, at most 100; 0: 100.
            before_ms: for a task that was removed: search events older than this Unix time.
            timeout: time limit of the call, retries included.

        Raises:
            TaskNotFound: the tube does not have the task, and no event was found.
        """
        request = feed_service_pb2.GetTaskEventsRequest(
            tube=self.name, task_id=task_id, events_max=events_max, before_ms=before_ms
        )
        return await self._connection.call(
            lambda node: node.feed.GetTaskEvents, request, timeout=timeout
        )

    async def graph(
        self,
        task_id: int,
        *,
        depth_max: int = 5,
        tasks_max: int = 500,
        timeout: Duration | None = None,
    ) -> task_service_pb2.GetTaskGraphResponse:
        """Return the tasks that a task waits for, those that wait for the task, and so on.

        Args:
            task_id: id of the task.
            depth_max: maximum number of edges between the task and another, 1 to 5.
            tasks_max: maximum number of tasks, 1 to 500.
            timeout: time limit of the call, retries included.

        Raises:
            TubeNotFound: there is no such tube.
            TaskNotFound: the tube does not have the task.
        """
        request = task_service_pb2.GetTaskGraphRequest(
            tube=self.name,
            id=whole_number("task_id", task_id, 1, 2**63 - 1),
            depth_max=whole_number("depth_max", depth_max, 1, 5),
            tasks_max=whole_number("tasks_max", tasks_max, 1, 500),
        )
        return await self._connection.call(
            lambda node: node.tasks.GetTaskGraph, request, timeout=timeout
        )

    # -------------------------------------------------------------------------------- change

    async def kick(
        self,
        count: int = 1,
        *,
        ids: TaskSelection | None = None,
        delay: Duration = 0,
        timeout: Duration | None = None,
    ) -> Kicked:
        """Kick the first `count` buried tasks, or the tasks `ids`; return their number."""
        request = task_service_pb2.KickTasksRequest(
            tube=self.name, delay_ms=milliseconds(delay, "delay")
        )
        if ids is None:
            return await self._kick_first(request, count, timeout)
        request.selector.CopyFrom(selector_of(ids))
        answers = await self._change(lambda node: node.tasks.KickTasks, request, timeout, ids)
        return Kicked(sum(answer.count for answer in answers), answers[-1].buried)

    async def _kick_first(
        self, request: task_service_pb2.KickTasksRequest, count: int, timeout: Duration | None
    ) -> Kicked:
        """Kick buried tasks, at most 1 000 in each call, until ``count`` tasks are kicked."""
        kicked = 0
        while True:
            set_field(request, "count", min(count - kicked, MESSAGE_ITEMS_MAX))
            request.request_id = new_request_id()
            answer = await self._connection.call(
                lambda node: node.tasks.KickTasks, request, timeout=timeout
            )
            kicked += answer.count
            if kicked >= count or answer.count < request.count:
                return Kicked(kicked, answer.buried)

    async def bury(
        self, tasks: TaskSelection, *, reason: Reason = "", timeout: Duration | None = None
    ) -> int:
        """Bury tasks that have no holder; return the number of buried tasks."""
        request = task_service_pb2.BuryTasksRequest(
            tube=self.name, selector=selector_of(tasks), failure=_settlement.failure_of(reason)
        )
        answers = await self._change(lambda node: node.tasks.BuryTasks, request, timeout, tasks)
        return sum(answer.count for answer in answers)

    async def delete(self, tasks: TaskSelection, *, timeout: Duration | None = None) -> int:
        """Remove tasks in any state; return the number of removed tasks."""
        request = task_service_pb2.DeleteTasksRequest(tube=self.name, selector=selector_of(tasks))
        answers = await self._change(lambda node: node.tasks.DeleteTasks, request, timeout, tasks)
        return sum(answer.count for answer in answers)

    async def update(
        self,
        tasks: TaskSelection,
        *,
        timeout: Duration | None = None,
        **changes: Unpack[TaskChanges],
    ) -> int:
        """Change HELD, READY, DELAYED or BURIED tasks as `TaskChanges` says; return the count."""
        request = task_service_pb2.UpdateTasksRequest(
            tube=self.name, selector=selector_of(tasks), update=update_of(changes)
        )
        answers = await self._change(lambda node: node.tasks.UpdateTasks, request, timeout, tasks)
        return sum(answer.count for answer in answers)

    async def snatch(
        self, tasks: TaskSelection, *, delay: Duration = 0, timeout: Duration | None = None
    ) -> int:
        """Take tasks away from their holders, whose leases become stale; return their number."""
        request = task_service_pb2.SnatchTasksRequest(
            tube=self.name, selector=selector_of(tasks), delay_ms=milliseconds(delay, "delay")
        )
        answers = await self._change(lambda node: node.tasks.SnatchTasks, request, timeout, tasks)
        return sum(answer.count for answer in answers)

    async def restart(
        self, tasks: TaskSelection, *, delay: Duration = 0, timeout: Duration | None = None
    ) -> int:
        """Restart DELAYED, BURIED and finished tasks with attempts reset; return the number."""
        request = task_service_pb2.RestartTasksRequest(
            tube=self.name, selector=selector_of(tasks), delay_ms=milliseconds(delay, "delay")
        )
        answers = await self._change(lambda node: node.tasks.RestartTasks, request, timeout, tasks)
        return sum(answer.count for answer in answers)

    async def switch(
        self,
        tasks: TaskSelection,
        state: State,
        *,
        duration: Duration = 0,
        timeout: Duration | None = None,
    ) -> int:
        """Set the state of tasks that have no holder; return the number of changed tasks.

        Args:
            tasks: tasks to change.
            state: new state.
            duration: with "delayed": the delay. With "zombie": the retention time.
            timeout: time limit of the call, retries included.
        """
        request = task_service_pb2.SwitchTasksRequest(
            tube=self.name,
            selector=selector_of(tasks),
            state=task_pb2.Task.State.ValueType(choice("state", state, STATES)),
            duration_ms=milliseconds(duration, "duration"),
        )
        answers = await self._change(lambda node: node.tasks.SwitchTasks, request, timeout, tasks)
        return sum(answer.count for answer in answers)

    async def cancel(self, tasks: TaskSelection, *, timeout: Duration | None = None) -> Cancelled:
        """Ask the holders of tasks to stop, and remove tasks that have no holder."""
        request = task_service_pb2.CancelTasksRequest(tube=self.name, selector=selector_of(tasks))
        answers = await self._change(lambda node: node.tasks.CancelTasks, request, timeout, tasks)
        return Cancelled(
            sum(answer.asked for answer in answers), sum(answer.removed for answer in answers)
        )

    async def _change(
        self,
        method: Callable[[NodeStubs], AsyncUnaryMethod[Change, Changed]],
        request: Change,
        timeout: Duration | None,
        tasks: TaskSelection,
    ) -> list[Changed]:
        """Send one call for each 1 000 named tasks, or the calls of a filter; return all responses.

        After each response, a filter reports the number of changed tasks.

        Raises:
            TaskraftError: the only task was refused, or a call failed; earlier calls have taken
                effect.
            ItemsRefused: some of several tasks were refused; the other tasks were changed.
        """
        if isinstance(tasks, Where):
            return await self._change_matching(method, request, timeout, tasks)
        ids, keys = list(request.selector.ids), list(request.selector.keys)
        answers: list[Changed] = []
        refused: dict[int, errors.TaskraftError] = {}
        for first in range(0, max(len(ids), len(keys), 1), MESSAGE_ITEMS_MAX):
            end = first + MESSAGE_ITEMS_MAX
            part = task_pb2.TaskSelector(ids=ids[first:end], keys=keys[first:end])
            request.selector.CopyFrom(part)
            request.request_id = new_request_id()
            answer = await self._connection.call(method, request, timeout=timeout)
            answers.append(answer)
            for item, error in refused_items(answer.errors).items():
                name_selected_task(error, self.name, part, item)
                refused[first + item] = error
        raise_refused_items(refused, max(len(ids), len(keys)))
        return answers

    async def _change_matching(
        self,
        method: Callable[[NodeStubs], AsyncUnaryMethod[Change, Changed]],
        request: Change,
        timeout: Duration | None,
        tasks: Where,
    ) -> list[Changed]:
        """Send the calls of a filter; see `_change`."""
        answers: list[Changed] = []
        refused: dict[int, errors.TaskraftError] = {}
        while True:
            request.request_id = new_request_id()
            answer = await self._connection.call(method, request, timeout=timeout)
            answers.append(answer)
            if tasks.report is not None:
                tasks.report(_changed_count(answer))
            for error in refused_items(answer.errors).values():
                refused[len(refused)] = error  # a filter reports refusals in order of the ids
            if not answer.continue_after_id:
                break
            request.selector.after_id = answer.continue_after_id
            if tasks.report_id is not None:
                tasks.report_id(answer.continue_after_id)
        if refused:
            raise errors.ItemsRefused(refused, items=len(refused))
        return answers

    async def list(
        self,
        filter: str = "",
        *,
        order_by: str = "",
        timeout: Duration | None = None,
    ) -> AsyncIterator[Task]:
        """Yield the tasks that match a filter, page by page, in their state at the first page."""
        request = task_service_pb2.ListTasksRequest(
            tube=self.name, filter=text("filter", filter), order_by=text("order_by", order_by)
        )
        async for page in self._connection.pages(
            lambda node: node.tasks.ListTasks, request, timeout=timeout
        ):
            for message in page.tasks:
                yield Task(message)

    async def count(
        self,
        filter: str = "",
        *,
        report: Callable[[int, int], None] | None = None,
        timeout: Duration | None = None,
    ) -> int:
        """Return the number of tasks that match a filter, without reading the tasks.

        Tasks that are put meanwhile are not counted. The nodes examine all tasks of the tube, at
        most 20 000 in one call.

        Args:
            filter: filter expression; empty: all tasks.
            report: called after each call with the numbers of tasks that match and that were
                examined so far.
            timeout: time limit of each call, retries included.
        """
        request = task_service_pb2.CountTasksRequest(tube=self.name, filter=text("filter", filter))
        count = examined = 0
        async for page in self._connection.pages(
            lambda node: node.tasks.CountTasks, request, timeout=timeout
        ):
            count += page.count
            examined += page.examined
            if report is not None:
                report(count, examined)
        return count

    async def page(
        self,
        filter: str = "",
        *,
        order_by: str = "",
        size: int = 100,
        token: str = "",
        payload: bool = True,
        staleness: Duration | None = None,
        timeout: Duration | None = None,
    ) -> TaskPage:
        """Return one page of the tasks that match a filter; a page can be short or empty.

        Args:
            filter: filter expression; empty: all tasks.
            order_by: "id", "id desc", "taking" or "kicking"; default: "id".
            size: maximum number of tasks, 1 to 1 000.
            token: the `next_token` of the previous page; empty: the first page.
            payload: False: leave the payloads out.
            staleness: accept the state that a node had at most this long ago; default: the current
                state.
            timeout: time limit of the call, retries included.
        """
        request = task_service_pb2.ListTasksRequest(
            tube=self.name,
            filter=text("filter", filter),
            order_by=text("order_by", order_by),
            page_size=size,
            page_token=text("token", token),
            payload_omit=not flag("payload", payload),
            consistency=consistency_of(staleness),
        )
        response = await self._connection.call(
            lambda node: node.tasks.ListTasks, request, timeout=timeout
        )
        return TaskPage(
            tasks=tuple(map(Task, response.tasks)),
            next_token=response.next_page_token,
            now_ms=response.now_ms,
            revision=response.revision,
        )
