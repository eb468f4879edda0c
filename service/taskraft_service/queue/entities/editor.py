"""State what the queue needs of whoever understands the content of tasks.

To the queue content is bytes. An editor changes it without knowing anything else: equal bytes in,
equal bytes out, on every node and in every version of the libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from taskraft_service.queue.entities.refusal import Refusal


class Edited(NamedTuple):
    """A task's new content, and the size of the payload in it."""

    body: bytes
    payload_bytes: int


Editor: TypeAlias = Callable[[bytes, bytes], Edited | Refusal]
"""Makes new content out of a task's content and the changes that a client asked for."""


def unchanged(body: bytes, changes: bytes) -> Edited | Refusal:
    """Refuse to be asked: stands in where nobody edits, as in tests of the queue alone."""
    raise AssertionError(f"no editor for {len(changes)} bytes of changes to {len(body)} bytes")
