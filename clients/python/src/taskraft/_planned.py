"""Describe a task that shall be put later: by a schedule, a group or a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from taskraft._spec import prototype, spec_of

if TYPE_CHECKING:
    from taskraft._payload import Payload
    from taskraft._spec import PutOptions
    from taskraft.v1 import task_pb2


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task for a tube that is not put yet; made by `Tube.task`."""

    tube: str
    """Name of the tube."""
    spec: task_pb2.TaskSpec
    """The task as the contract writes it."""


def planned(tube: str, payload: Payload, options: PutOptions) -> PlannedTask:
    """Return the plan of a task."""
    return PlannedTask(tube, spec_of(payload, prototype(options) if options else None))
