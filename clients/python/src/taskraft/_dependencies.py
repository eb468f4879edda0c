"""Encode the tasks that a new task depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, Union

from taskraft._arguments import wrong_type, wrong_value
from taskraft._task import Task
from taskraft.v1 import task_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from taskraft._planned_task import PlannedTask

DependsOn: TypeAlias = Union[Task, "PlannedTask", str, int]
"""A task, a planned task of the same batch, "tube/id", or the id of a task in the same tube."""


EXPECTED: Final = 'existing tasks, task ids, or strings like "emails/17"'


def references(depends_on: Iterable[DependsOn], tube: str) -> list[task_pb2.Dependency]:
    """Return the dependencies as messages; `tube` is the tube of plain ids.

    Raises:
        TypeError: a planned task, which only a batch can refer to, or a value of a wrong type.
        ValueError: a string without the form "tube/id".
    """
    return [
        task_pb2.Dependency(task=task_pb2.TaskReference(tube=name, id=task_id))
        for name, task_id in (_named(one, tube) for one in depends_on)
    ]


def _named(one: DependsOn, tube: str) -> tuple[str, int]:
    if isinstance(one, Task):
        return one.tube, one.id
    if isinstance(one, int):
        return tube, one
    if isinstance(one, str):
        name, slash, number = one.rpartition("/")
        if not slash or not number.isdecimal():
            raise wrong_value("depends_on", EXPECTED, one)
        return name, int(number)
    raise wrong_type("depends_on", f"{EXPECTED}; put a planned task in the same Batch", one)
