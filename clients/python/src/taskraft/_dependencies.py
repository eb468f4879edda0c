"""Name tasks that another one depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, Union

from taskraft._arguments import wrong_type, wrong_value
from taskraft._task import Task
from taskraft.v1 import task_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from taskraft._planned_task import PlannedTask

DependsOn: TypeAlias = Union[Task, "PlannedTask", str, int]
"""A task, one that the same batch puts before, "tube/id", or an id in the tube of the put."""


EXPECTED: Final = 'tasks that are there, ids, or texts like "emails/17"'


def references(depends_on: Iterable[DependsOn], tube: str) -> list[task_pb2.Dependency]:
    """Return tasks that are there as the contract names them; `tube` is that of mere ids.

    Raises:
        TypeError: A task is not put yet; only a batch can name it.
        ValueError: A text is not like "tube/id".
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
    raise wrong_type(
        "depends_on", f"{EXPECTED}; what is not put yet belongs into one Batch with it", one
    )
