"""Bring the declared tubes and schedules of an app into force on a cluster."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from taskraft import AsyncClient, Duration, PlannedTask, errors
from taskraft._schedules import Schedule, ScheduleOptions, schedule_message
from taskraft.v1 import schedule_service_pb2 as pb

if TYPE_CHECKING:
    from taskraft.worker.declarations import Declarations

log = logging.getLogger("taskraft.worker")

APP_HEADER: Final = "taskraft-app"
"""Header of the tasks of a schedule with the name of the app that declares the schedule."""
_COMPARED: Final = (
    "cron", "time_zone", "jitter_ms", "catch_up", "overlap", "tube", "spec",
)  # fmt: skip


class Change(NamedTuple):
    """One change that `App.apply` has made."""

    action: str
    """Either "created", "changed" or "deleted"."""
    kind: str
    """Either "tube" or "schedule"."""
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.action}"


Step: TypeAlias = "tuple[Change | None, Callable[[], Awaitable[object]]]"
"""A change, or None for a change of options that is not listed, and the call that makes it."""


class UnknownType(NamedTuple):
    """Tasks that wait for a worker, and whose type the app does not declare."""

    tube: str
    type: str


class DeclaredSchedule(NamedTuple):
    """A schedule as the app declares it."""

    name: str
    cron: str
    task: PlannedTask
    options: ScheduleOptions

    def message(self) -> pb.Schedule:
        """Return the schedule as a message."""
        return schedule_message(*self)


class Deployment:
    """The declarations of an app, compared with a cluster."""

    def __init__(
        self, app: Declarations, client: AsyncClient, timeout: Duration | None = None
    ) -> None:
        """Store the app; `timeout` is the time limit of each call, retries included."""
        self._app = app
        self._client = client
        self._timeout = timeout

    async def create_tubes(self) -> None:
        """Create the tubes that do not exist; warn of declared tubes that differ (`TubeDiffers`).

        Without the right to create tubes, all tubes must exist.
        """
        app = self._app
        there = {tube.name for tube in await self._client.list_tubes(timeout=self._timeout)}
        for name in app.used_tubes():
            if name in there and name not in app.tubes:
                continue
            kind, settings = app.tubes.get(name, ("fifottl", {}))
            try:
                await self._client.create_tube(
                    name, kind, if_not_exists=True, timeout=self._timeout, **settings
                )
            except errors.NotAllowed:
                log.info("%s: not allowed to create tubes, so %s must exist", app.name, name)

    async def create_schedules(self) -> None:
        """Create the schedules that do not exist; log existing schedules that differ."""
        for declared in self._declared():
            try:
                await self._create(declared)
            except errors.ScheduleExists:
                continue  # another worker was faster, or an earlier start
            except errors.NotAllowed:
                log.info("%s: not allowed to create schedules", self._app.name)
                return
        for existing, wanted in await self._existing():
            if wanted is not None and _differs(existing, wanted):
                log.warning(
                    "%s: the schedule %s differs from its declaration; `taskraft app apply` "
                    "changes it",
                    self._app.name,
                    existing.name,
                )

    async def apply(self, *, prune: bool = False, dry_run: bool = False) -> list[Change]:
        """Create and change tubes and schedules as declared.

        A schedule belongs to the app if its task has the header `taskraft-app` with the app's
        name. A paused schedule stays paused. Tubes are never deleted.

        Args:
            prune: True: delete the schedules of the app that it does not declare; False: keep them.
            dry_run: True: change nothing.

        Returns:
            The changes of schedules, and the tubes that were created; for a dry run, those that
            would be made.
        """
        steps = [*await self._tube_steps(), *await self._schedule_steps(prune=prune)]
        if not dry_run:
            for _, step in steps:
                await step()
        return [change for change, _ in steps if change is not None]

    async def unknown_types(self) -> list[UnknownType]:
        """Return the types of READY tasks in the app's tubes that the app does not declare."""
        found: list[UnknownType] = []
        consumed = {tube for tube, _, options in self._app.consumers if "types" not in options}
        for tube in self._app.used_tubes():
            if tube in consumed:
                continue
            tasks = [task for task in self._app.tasks.values() if task.tube == tube]
            known = {name for task in tasks for name in (task.name, *task.upgrades)}
            seen: set[str] = set()
            async for task in self._client.tube(tube).list("state = READY", timeout=self._timeout):
                kind = task.message.spec.type
                if kind not in known and kind not in seen:
                    seen.add(kind)
                    found.append(UnknownType(tube, kind))
        return found

    async def _tube_steps(self) -> list[Step]:
        """Return the steps that bring the declared tubes into force."""
        there = {tube.name for tube in await self._client.list_tubes(timeout=self._timeout)}
        steps: list[Step] = []
        for name in self._app.used_tubes():
            change = Change("created", "tube", name) if name not in there else None
            if name in self._app.tubes:
                kind, settings = self._app.tubes[name]
                ensure = partial(self._client.ensure_tube, timeout=self._timeout, **settings)
                steps.append((change, partial(ensure, name, kind)))
            elif change is not None:
                create = partial(self._client.create_tube, timeout=self._timeout)
                steps.append((change, partial(create, name, if_not_exists=True)))
        return steps

    async def _schedule_steps(self, *, prune: bool) -> list[Step]:
        """Return the steps that bring the declared schedules into force."""
        schedules, steps = self._client.schedules, list[Step]()
        missing = {declared.name: declared for declared in self._declared()}
        for existing, wanted in await self._existing():
            name = existing.name
            missing.pop(name, None)
            if wanted is None and prune:
                delete = partial(schedules.delete, name, timeout=self._timeout)
                steps.append((Change("deleted", "schedule", name), delete))
            elif wanted is not None and _differs(existing, wanted):
                wanted.paused = existing.paused
                update = partial(schedules.update, Schedule.of(wanted), timeout=self._timeout)
                steps.append((Change("changed", "schedule", name), update))
        for name, declared in missing.items():
            steps.append((Change("created", "schedule", name), partial(self._create, declared)))
        return steps

    def _declared(self) -> Iterable[DeclaredSchedule]:
        for task in self._app.tasks.values():
            if task.schedule is None:
                continue
            cron, options = task.schedule
            plan = task.scheduled()
            plan.spec.headers[APP_HEADER] = self._app.name.encode()
            name = f"{self._app.name}/{task.name}"
            yield DeclaredSchedule(name, cron, PlannedTask(plan.tube, plan.spec), options)

    async def _existing(self) -> list[tuple[Schedule, pb.Schedule | None]]:
        """Return the schedules of this app on the cluster with their declarations."""
        declared = {one.name: one.message() for one in self._declared()}
        ours = self._app.name.encode()
        return [
            (schedule, declared.get(schedule.name))
            for schedule in await self._client.schedules.list(timeout=self._timeout)
            if schedule.spec is not None and schedule.spec.headers.get(APP_HEADER) == ours
        ]

    async def _create(self, declared: DeclaredSchedule) -> None:
        name, cron, task, options = declared
        await self._client.schedules.create(name, cron, task, timeout=self._timeout, **options)


def _differs(existing: Schedule, declared: pb.Schedule) -> bool:
    return any(getattr(existing.message, name) != getattr(declared, name) for name in _COMPARED)
