"""Bring the declared tubes and schedules of an app into force on a cluster."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

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

    async def apply(self) -> list[Change]:
        """Create and change tubes and schedules as declared; delete schedules that are gone.

        A schedule belongs to the app if its task has the header `taskraft-app` with the app's
        name. A paused schedule stays paused. Tubes are never deleted.

        Returns:
            The changes of schedules, and the tubes that were created.
        """
        changes = [change async for change in self._apply_tubes()]
        missing = {declared.name: declared for declared in self._declared()}
        for existing, wanted in await self._existing():
            missing.pop(existing.name, None)
            if wanted is None:
                await self._client.schedules.delete(existing.name, timeout=self._timeout)
                changes.append(Change("deleted", "schedule", existing.name))
            elif _differs(existing, wanted):
                wanted.paused = existing.paused
                await self._client.schedules.update(Schedule.of(wanted), timeout=self._timeout)
                changes.append(Change("changed", "schedule", existing.name))
        for declared in missing.values():
            await self._create(declared)
            changes.append(Change("created", "schedule", declared.name))
        return changes

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

    async def _apply_tubes(self) -> AsyncIterator[Change]:
        there = {tube.name for tube in await self._client.list_tubes(timeout=self._timeout)}
        for name in self._app.used_tubes():
            if name in self._app.tubes:
                kind, settings = self._app.tubes[name]
                await self._client.ensure_tube(name, kind, timeout=self._timeout, **settings)
            elif name not in there:
                await self._client.create_tube(name, if_not_exists=True, timeout=self._timeout)
            if name not in there:
                yield Change("created", "tube", name)

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
