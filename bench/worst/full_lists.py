"""Fill lists and texts of requests up to their limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from bench.worst.stage import Stage, key
from taskraft.v1 import task_pb2
from taskraft_service import limits

PATTERN_STEPS: Final = 6
"""Upper limit of the steps for one name and one pattern of ``patterns``."""
FAILURE: Final = task_pb2.Failure(type="x" * 200, message="x" * 4_000)
LINEARIZABLE: Final = task_pb2.Consistency(level=task_pb2.Consistency.LINEARIZABLE)
ALL_STATES: Final = [state for state in task_pb2.Task.State.values() if state]
"""The states that a unique key can be limited to."""
LABELS: Final = {f"label{number:02}": "x" * 48 for number in range(limits.SESSION_LABELS_MAX)}
TYPES: Final = [f"t{number}".ljust(128, "x") for number in range(limits.TAKE_TYPES_MAX)]
WEIGHTS: Final = {f"subqueue.{number}": 1 + number for number in range(limits.NAMES_MAX)}
"""Weights of as many subqueues as a tube can weigh."""
UPDATE: Final = task_pb2.TaskUpdate(
    headers_set={f"{number:04}": b"x" * 4 for number in range(limits.HEADERS_MAX)},
    headers_remove=[f"removed{number}" for number in range(limits.HEADERS_MAX)],
)
"""A change of tasks with as many headers as one change can set and remove."""


def patterns(names: int, most: int) -> list[str]:
    """Return patterns without a fixed beginning or end, which match none of the names.

    The node compares each name with each piece of each pattern, so the number of patterns is
    limited by the steps of one request.
    """
    number = min(most, limits.REQUEST_STEPS_MAX // (names * PATTERN_STEPS) - 2)
    return [f"*t*e*.*{place}x*" for place in range(number)]


def with_tubes(found: Sequence[str], stage: Stage, length: int) -> list[str]:
    """Fill a list of names or patterns up to ``length`` with names of tubes, which may repeat."""
    rest = length - len(found)
    return [*found, *(f"tube.{number % stage.size.tubes:05}" for number in range(rest))]


def headers(number: int) -> dict[str, bytes]:
    """Return headers of about 80 bytes each."""
    return {f"header{place}": b"x" * 72 for place in range(number)}


def ids(found: Iterable[int]) -> task_pb2.TaskSelector:
    """Return a selector of ids."""
    return task_pb2.TaskSelector(ids=found)


def keys(number: int) -> task_pb2.TaskSelector:
    """Return a selector of the keys of the first tasks that ``Stage.keyed_tube`` puts."""
    return task_pb2.TaskSelector(
        keys=[task_pb2.UniqueKey(parts=key(place)) for place in range(number)]
    )


async def full_specs(stage: Stage, number: int) -> list[task_pb2.TaskSpec]:
    """Return tasks whose lists have the maxima of all tasks of one put.

    The tasks depend on tasks of another tube, which is created.
    """
    tube, found = await stage.tube_of(limits.PUT_DEPENDENCIES_MAX // number)
    on = [task_pb2.Dependency(task=task_pb2.TaskReference(tube=tube, id=one)) for one in found]
    own = headers(min(limits.PUT_HEADERS_MAX // number, limits.HEADERS_MAX))
    return [
        task_pb2.TaskSpec(
            payload=b"x" * 500,
            headers=own,
            unique_key=key(place),
            unique_states=ALL_STATES,
            type="kind",
            depends_on=on,
            ttl_ms=3_600_000,
        )
        for place in range(number)
    ]


def stored_spec(payload_bytes: int) -> task_pb2.TaskSpec:
    """Return a task that a group or a schedule keeps, with full lists."""
    return task_pb2.TaskSpec(
        payload=b"x" * payload_bytes,
        headers=headers(limits.HEADERS_MAX),
        unique_key=key(1),
        unique_states=ALL_STATES,
    )
