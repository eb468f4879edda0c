"""Read the results of the tasks that a task has waited for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar, cast

from taskraft import AsyncClient, Task, errors
from taskraft.v1 import task_pb2
from taskraft.worker.codecs import codec_for
from taskraft.worker.errors import DecodeError
from taskraft.worker.handle import PROCESSED, Result

AFTER_HEADER: Final = "taskraft-after"
"""Header with the tubes and keys of the tasks that a step depends on, as JSON."""
RETAIN_HEADER: Final = "taskraft-retain-ms"
"""Header with the minimum time for which the result of a step is kept, in ms."""
GROUP_HEADER: Final = "taskraft-group"
"""Header of an end task with the name of its group."""
_KEPT: Final = ("DONE", "ZOMBIE")

T = TypeVar("T")


class Step(NamedTuple):
    """A task that another task has waited for."""

    message: bytes
    """The task as a serialised message; empty if it was removed."""

    def result(self, kind: type[T]) -> Result[T]:
        """Return the outcome of the task.

        Raises:
            DecodeError: the result is not of this type.
        """
        if not self.message:
            return Result("NOT_KEPT", None, "the task was removed", 0)
        task = Task(task_pb2.Task.FromString(self.message))
        if task.state == "BURIED":
            return Result("BURIED_OUT", None, task.failure, task.attempt)
        if task.state not in _KEPT or task.outcome not in ("", PROCESSED):
            return Result(task.outcome or task.state, None, task.failure, task.attempt)
        value = None
        if task.result:
            codec = codec_for((kind,))
            content_type = task.message.result_content_type
            if content_type and content_type != codec.content_type:
                raise DecodeError(
                    f"the result of {task} is {content_type}, and {kind!r} is read from "
                    f"{codec.content_type}"
                )
            value = cast("T", codec.decode(task.result, kind))
        return Result(PROCESSED, value, "", task.attempt)


async def steps_before(task: Task, client: AsyncClient) -> Sequence[Step]:
    """Read the tasks that a step of a flow has waited for; other tasks have none.

    Raises:
        TaskraftError: a task could not be read.
    """
    header = task.headers.get(AFTER_HEADER)
    if header is None:
        return ()
    return await asyncio.gather(*(_step(client, tube, key) for tube, key in json.loads(header)))


async def _step(client: AsyncClient, tube: str, key: Sequence[str]) -> Step:
    try:
        found = await client.tube(tube).peek(key=key)
    except errors.TaskNotFound:
        return Step(b"")
    return Step(found.message.SerializeToString())


def retain_ms(task: Task) -> int:
    """Return the time in ms for which a later step needs the result of a task; 0: none does."""
    return int(task.headers.get(RETAIN_HEADER, b"0"))
