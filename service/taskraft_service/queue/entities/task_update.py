"""Changes of one task, and the interface that changes the content of tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.values import value


@value
class TaskUpdate:
    """Changes of one task; None leaves an attribute unchanged; durations count from now.

    Args:
        content: changes of the body, opaque to the queue, for its ``Editor``; empty: none.
        priority: the new priority.
        delay_ms: the new delay; ignored for a READY task.
        ttl_ms: the new time to live.
        ttr_ms: the new time to run, from the next take.
    """

    content: bytes = b""
    priority: int | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    ttr_ms: int | None = None


class Edited(NamedTuple):
    """The new content of a task, and the size of its payload."""

    body: bytes
    payload_bytes: int


Editor: TypeAlias = Callable[[bytes, bytes], Edited | Refusal]
"""Returns the content of a task with the changes of a client, or a refusal."""


def unchanged(body: bytes, changes: bytes) -> Edited | Refusal:
    """Raise an error: the editor of a queue without updates of content, as in tests."""
    raise AssertionError(f"no editor for {len(changes)} bytes of changes to {len(body)} bytes")
