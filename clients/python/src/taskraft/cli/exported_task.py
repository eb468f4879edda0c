"""Lines of an export: each is one task as JSON, with its options, state and times."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from taskraft import Task
    from taskraft.v1 import task_pb2

FORMAT: Final = "taskraft.task.v2"
"""Format of a line: the field "format" and the fields of the message Task of the API.

Lease token and session id are left out, because they give the rights of the holder.
"""
TIMELESS_FORMAT: Final = "taskraft.task.v1"
"""Format of development builds, without times and attempts; an import refuses it."""
LEASE: Final = "lease"
HISTORY: Final = "history"
ORIGIN: Final = "origin"
GROUP: Final = "group"
DEPENDENCIES: Final = "dependencies"
EXPIRED: Final = "expired"
OPTIONAL: Final = (LEASE, HISTORY, ORIGIN, GROUP, DEPENDENCIES, EXPIRED)
"""Values of ``--without``: what an import leaves out of tasks; EXPIRED leaves out whole tasks."""


class ExportedTask(NamedTuple):
    """The task of one line."""

    line: int
    """Number of the line, from 1."""
    task: task_pb2.Task
    """The task when it was exported."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.task.tube}/{self.task.id}"


def line_of(task: Task) -> str:
    """Return the line of a task, without a line feed."""
    from taskraft.cli.output import json_text, to_value

    fields = to_value(task.message)
    del fields["token"], fields["session_id"]
    return json_text({"format": FORMAT, **fields})


def read_tasks(file: IO[str]) -> Iterator[ExportedTask]:
    """Yield the task of each line that is not empty.

    Raises:
        ValueError: a line is not a line of an export, or has the format of an earlier version.
    """
    for number, line in enumerate(file, start=1):
        if line.strip():
            yield ExportedTask(number, _task_of(number, line))


def _task_of(number: int, line: str) -> task_pb2.Task:
    from google.protobuf import json_format

    from taskraft.v1 import task_pb2

    try:
        fields = json.loads(line)
        line_format = fields.pop("format")
        if line_format == FORMAT:
            return json_format.ParseDict(fields, task_pb2.Task())
    except KeyError as error:
        text = f"line {number} is not a line of an export: the member {error} is missing"
        raise ValueError(f"{text}; for lines of payloads, use taskraft put TUBE -") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"line {number} is not a line of an export: {error}") from None
    except json_format.ParseError as error:
        raise ValueError(f"line {number} is not a line of an export: {error}") from None
    if line_format == TIMELESS_FORMAT:
        text = f"line {number} has the format {line_format}, without the times of the task"
        raise ValueError(f"{text}; export the tasks again, the format is now {FORMAT}")
    raise ValueError(f"line {number} is not a line of an export of the format {FORMAT}")
