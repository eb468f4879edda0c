"""Chains, fan-in and groups: tasks that wait for other tasks on the server."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, Self, TypeVar

from taskraft import AsyncClient, Batch, Duration, PlannedTask, errors
from taskraft._durations import milliseconds
from taskraft.v1 import task_pb2
from taskraft.worker.handle import Handle
from taskraft.worker.steps import AFTER_HEADER, GROUP_HEADER, RETAIN_HEADER
from taskraft.worker.task import Plan

if TYPE_CHECKING:
    from taskraft.worker.app import App

RETAIN_DEFAULT: Final = "1d"
"""Default time for which results of steps are kept, long enough for a night without workers."""
MEMBERS_MAX: Final = 100
"""Maximum number of tasks that one task may depend on; the limit of the server."""

R = TypeVar("R")


class StepKey(NamedTuple):
    """Tube and unique key of a step, with which later steps refer to the step."""

    tube: str
    key: Sequence[str]


class Flow(Generic[R]):
    """Tasks that depend on each other, and are put in one command: all of them or none."""

    def __init__(
        self, steps: Sequence[tuple[Plan[Any], Sequence[int]]], retain_ms: int, *, runs_always: bool
    ) -> None:
        """Store the steps.

        Args:
            steps: calls with the positions of the earlier steps that they wait for.
            retain_ms: time for which a result is kept if other steps wait for it, in ms.
            runs_always: whether steps run although a step before them has failed.
        """
        self._steps = steps
        self._retain_ms = retain_ms
        self._runs_always = runs_always
        self._last: Plan[R] = steps[-1][0]

    def put(self) -> Handle[R]:
        """Put all steps, and return the handle of the last step.

        Raises:
            RuntimeError: an event loop runs in this thread; use `aput`.
            TaskraftError: the put was refused or failed, and no step was put.
        """
        clients = self._last.task.app.clients
        return clients.run(self._put(clients.blocking_inner()))

    async def aput(self) -> Handle[R]:
        """Do the same as `put`, in asyncio."""
        return await self._put(self._last.task.app.clients.here())

    async def _put(self, client: AsyncClient) -> Handle[R]:
        results = await client.execute(Batch().put(*self.planned(secrets.token_hex(8))))
        task_ids = [task_id for result in results for task_id in result.put.task_ids]
        return self._last.task.handle(task_ids[-1])

    def planned(self, flow_id: str) -> list[PlannedTask]:
        """Return the steps as tasks that depend on each other; their keys begin with `flow_id`."""
        waited_for = {before for _, after in self._steps for before in after}
        keys: list[StepKey] = []
        planned: list[PlannedTask] = []
        for number, (plan, after) in enumerate(self._steps):
            spec = task_pb2.TaskSpec()
            spec.CopyFrom(plan.spec)
            if not spec.unique_key:
                spec.unique_key.extend((flow_id, str(number)))
            keys.append(StepKey(plan.tube, list(spec.unique_key)))
            if after:
                places = [keys[before] for before in after]
                spec.headers[AFTER_HEADER] = json.dumps(places).encode()
                if self._runs_always:
                    spec.on_dependency_failure = task_pb2.TaskSpec.RUN
            if number in waited_for:
                spec.headers[RETAIN_HEADER] = str(self._retain_ms).encode()
            before = tuple(planned[place] for place in after)
            planned.append(PlannedTask(plan.tube, spec, before + plan.after))
        return planned


def chain(*plans: Plan[Any], retain: Duration = RETAIN_DEFAULT) -> Flow[Any]:
    """Return a flow in which each call waits until the call before it is acknowledged.

    A step reads the result of the step before it with `Context.previous`. If a step ends without
    success or is BURIED, the later steps end as DEPENDENCY_FAILED. A kick of the step does not
    run them.

    Args:
        *plans: calls of any tasks, made by `TaskFunction.plan`; at least one.
        retain: time for which the results of steps are kept.

    Raises:
        ValueError: there is no call.
    """
    if not plans:
        raise ValueError("a chain needs at least one call")
    steps = [(plan, [place - 1] if place else []) for place, plan in enumerate(plans)]
    return Flow(steps, milliseconds(retain, "retain"), runs_always=False)


class FanOut:
    """Calls that run in any order, before one call that combines their results."""

    def __init__(self, plans: Sequence[Plan[Any]]) -> None:
        self._plans = plans

    def then(
        self,
        plan: Plan[R],
        *,
        on_failure: Literal["cancel", "run"] = "cancel",
        retain: Duration = RETAIN_DEFAULT,
    ) -> Flow[R]:
        """Return a flow that ends with a call after all calls of the group.

        The last call reads the results with `Context.results`.

        Args:
            plan: call after the group.
            on_failure: "cancel": the last call ends as DEPENDENCY_FAILED if a call of the group has
                failed or is BURIED; "run": it runs anyway, once.
            retain: time for which the results of the group are kept.
        """
        members: list[tuple[Plan[Any], list[int]]] = [(one, []) for one in self._plans]
        steps = [*members, (plan, list(range(len(members))))]
        return Flow(steps, milliseconds(retain, "retain"), runs_always=on_failure == "run")


def group(plans: Iterable[Plan[Any]]) -> FanOut:
    """Return up to 100 calls, to be followed by `FanOut.then`; `App.group` has no limit.

    Raises:
        ValueError: there is no call, or there are more than 100.
    """
    members = list(plans)
    if not 1 <= len(members) <= MEMBERS_MAX:
        raise ValueError(
            f"a group has 1 to {MEMBERS_MAX} calls, not {len(members)}; use App.group for more"
        )
    return FanOut(members)


class AppGroup:
    """A group of any size: `async with app.group("book-1", then=bind.plan()) as pages:`.

    The tasks wait until the end of the block. An exception in the block cancels the group. Without
    an event loop, use `with` and `put_many`.
    """

    def __init__(
        self, app: App, name: str, then: Plan[Any] | None, on_failure: Plan[Any] | None
    ) -> None:
        self.name: Final = name
        """Name of the group."""
        self._app = app
        self._then = then
        self._on_failure = on_failure

    async def aput_many(self, plans: Iterable[Plan[R]]) -> list[Handle[R]]:
        """Put calls as tasks of the group; see `App.put_many`."""
        return await self._app.aput_many(self._member(plan) for plan in plans)

    def put_many(self, plans: Iterable[Plan[R]]) -> list[Handle[R]]:
        """Do the same as `aput_many`, without an event loop."""
        return self._app.put_many(self._member(plan) for plan in plans)

    def _member(self, plan: Plan[R]) -> Plan[R]:
        spec = task_pb2.TaskSpec()
        spec.CopyFrom(plan.spec)
        spec.group = self.name
        return replace(plan, spec=spec)

    def _end(self, plan: Plan[Any] | None) -> PlannedTask | None:
        if plan is None:
            return None
        spec = task_pb2.TaskSpec()
        spec.CopyFrom(plan.spec)
        spec.headers[GROUP_HEADER] = self.name.encode()
        return PlannedTask(plan.tube, spec, plan.after)

    async def _create(self, client: AsyncClient) -> None:
        await client.groups.create(
            self.name,
            end_task=self._end(self._then),
            abort_task=self._end(self._on_failure),
            only_if_processed=self._on_failure is not None,
        )

    async def _close(self, client: AsyncClient, error: BaseException | None) -> None:
        if error is None:
            await client.groups.start(self.name)
            return
        try:
            await client.groups.cancel(self.name)
        except errors.TaskraftError as refused:
            error.add_note(f"taskraft: the group {self.name} was not cancelled: {refused}")

    async def __aenter__(self) -> Self:
        await self._create(self._app.clients.here())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close(self._app.clients.here(), error)

    def __enter__(self) -> Self:
        clients = self._app.clients
        clients.run(self._create(clients.blocking_inner()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        clients = self._app.clients
        clients.run(self._close(clients.blocking_inner(), error))
