"""A task that is put later, by a schedule, a group or a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from taskraft._arguments import wrong_type
from taskraft._put_options import spec_of, spec_template

if TYPE_CHECKING:
    from taskraft._payload import Payload
    from taskraft._put_options import PutOptions
    from taskraft.v1 import task_pb2


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task for a tube that is not put yet; made by `Tube.task`."""

    tube: str
    """Name of the tube."""
    spec: task_pb2.TaskSpec
    """The task as a message, without `after`."""
    after: tuple[PlannedTask, ...] = field(default=(), repr=False)
    """Planned tasks that this task depends on."""

    @property
    def payload(self) -> bytes:
        """Payload as bytes."""
        return self.spec.payload

    def alone(self) -> task_pb2.TaskSpec:
        """Return the message of a task that is put on its own.

        Raises:
            ValueError: the task depends on planned tasks.
        """
        if self.after:
            raise ValueError("a task that depends on a planned task must be put in the same Batch")
        return self.spec


def check_planned_task(name: str, task: PlannedTask) -> PlannedTask:
    """Return a planned task unchanged.

    Raises:
        TypeError: the value is not a planned task.
    """
    if not isinstance(task, PlannedTask):
        raise wrong_type(name, 'a planned task, made by client.tube("emails").task(...)', task)
    return task


def plan_task(tube: str, payload: Payload, options: PutOptions) -> PlannedTask:
    """Return a planned task with the payload and the options of a put."""
    if not options:
        return PlannedTask(tube, spec_of(payload, None))
    named = options.get("depends_on", ())
    after = tuple(one for one in named if isinstance(one, PlannedTask))
    if after:
        there = [one for one in named if not isinstance(one, PlannedTask)]
        options = {**options, "depends_on": there}
    return PlannedTask(tube, spec_of(payload, spec_template(options, tube)), after)
