"""Define the interface that changes the content of tasks.

The content is opaque to the queue. An editor is a pure function: equal bytes in give equal bytes
out, on every node and with every version of the libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from taskraft_service.queue.entities.refusal import Refusal


class Edited(NamedTuple):
    """The new content of a task, and the size of its payload."""

    body: bytes
    payload_bytes: int


Editor: TypeAlias = Callable[[bytes, bytes], Edited | Refusal]
"""Returns the content of a task with the changes of a client, or a refusal."""


def unchanged(body: bytes, changes: bytes) -> Edited | Refusal:
    """Raise an error: the editor of a queue that gets no updates of content, as in tests."""
    raise AssertionError(f"no editor for {len(changes)} bytes of changes to {len(body)} bytes")
