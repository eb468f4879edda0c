"""Describe a task that shall be put later: by a schedule, a group or a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from taskraft._arguments import wrong_type
from taskraft._task_spec import spec_of, spec_template

if TYPE_CHECKING:
    from taskraft._payload import Payload
    from taskraft._task_spec import PutOptions
    from taskraft.v1 import task_pb2


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task for a tube that is not put yet; made by `Tube.task`."""

    tube: str
    """Name of the tube."""
    spec: task_pb2.TaskSpec
    """The task as the contract writes it, but for `after`."""
    after: tuple[PlannedTask, ...] = field(default=(), repr=False)
    """What it depends on and is not put yet either."""

    def alone(self) -> task_pb2.TaskSpec:
        """Return the spec of a task that is not put with others.

        Raises:
            ValueError: It depends on tasks that are not put yet.
        """
        if self.after:
            raise ValueError("what depends on a task that is not put yet belongs into one Batch")
        return self.spec


def check_planned_task(name: str, task: PlannedTask) -> PlannedTask:
    """Return the plan of a task as it is.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(task, PlannedTask):
        raise wrong_type(
            name, 'made by `task` of a tube, like client.tube("emails").task(...)', task
        )
    return task


def plan_task(tube: str, payload: Payload, options: PutOptions) -> PlannedTask:
    """Return the plan of a task."""
    if not options:
        return PlannedTask(tube, spec_of(payload, None))
    named = options.get("depends_on", ())
    after = tuple(one for one in named if isinstance(one, PlannedTask))
    if after:
        there = [one for one in named if not isinstance(one, PlannedTask)]
        options = {**options, "depends_on": there}
    return PlannedTask(tube, spec_of(payload, spec_template(options, tube)), after)
