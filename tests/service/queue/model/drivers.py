"""Tubes with a driver in the naive queue."""

from __future__ import annotations

from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.tube_driver import ArrivingTask
from taskraft_service.queue.entities.tube_options import TubeKind
from tests.service.queue.model.sessions import NEVER


class NaiveDrivers:
    """``drivers`` are the installed drivers by name; ``memory`` of a tube belongs to its driver."""

    def driver(self, tube):
        custom = tube["view"].kind is TubeKind.CUSTOM
        return self.drivers[tube["view"].driver] if custom else None

    def unfit_for_driver(self, tube, new):
        """Return why the driver of a tube refuses a new task, or None."""
        if not self.driver(tube):
            return None
        priority = tube["view"].options.priority if new.priority is None else new.priority
        arrival = ArrivingTask(0, priority, new.type, len(new.body), 0, self.now, 0, self.now)
        return Reason.KIND_UNSUITABLE if self.driver(tube).refuse(arrival) else None

    def barred(self, target, task):
        """Return why a tube cannot accept a task of another tube, apart from capacity, or None."""
        options, driver = target["view"].options, self.driver(target)
        if options.put_paused:
            return Reason.TUBE_PAUSED
        if not driver:
            return None
        known = options.priority_min <= task["priority"] <= options.priority_max
        priority = task["priority"] if known else options.priority
        expire = 0 if task["expire_at"] >= NEVER else task["expire_at"]
        size, created = len(task["body"]), task["created"]
        arrival = ArrivingTask(0, priority, task["type"], size, 0, created, expire, self.now)
        return Reason.KIND_UNSUITABLE if driver.refuse(arrival) else None

    def line_up(self, task):
        """Let the driver place a task that becomes READY."""
        tube = task["tube"]
        if driver := self.driver(tube):
            arrival = ArrivingTask(
                task["id"],
                task["priority"],
                task["type"],
                len(task["body"]),
                task["attempt"],
                task["created"],
                0 if task["expire_at"] >= NEVER else task["expire_at"],
                self.now,
            )
            placement = driver.place(arrival, tube["memory"])
            task["rank"], tube["memory"] = placement.rank, placement.memory
