"""Count the content that one command changes or moves, and keep its last edit."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.tube import QueueTask


class Edited(NamedTuple):
    """The new content of a task, and the size of its payload.

    ``work_bytes`` is the size of a payload that takes as long to change as this content.
    """

    body: bytes
    payload_bytes: int
    work_bytes: int = 0


class KeptEdit(NamedTuple):
    """The result of changes to the content of a task, for the next step with the same changes."""

    task: QueueTask
    changes: bytes
    result: Edited | Refusal


Editor: TypeAlias = Callable[[bytes, bytes], Edited | Refusal]
"""Applies a client's changes to the content of a task; returns the new content, or a refusal."""


def unchanged(body: bytes, changes: bytes) -> Edited | Refusal:
    """Raise AssertionError; an ``Editor`` for queues whose commands never change task content."""
    raise AssertionError(f"no editor for {len(changes)} bytes of changes to {len(body)} bytes")


class ContentWork:
    """The content that the command being executed changes or moves.

    Args:
        editor: changes the content of a task.

    Attributes:
        size: content in bytes, as far as the checks of the command have come.
        edit: the last edit that was computed and not applied; None: there is none.
    """

    __slots__ = ("edit", "editor", "size")

    def __init__(self, editor: Editor) -> None:
        """Start without content."""
        self.editor = editor
        self.size = 0
        self.edit: KeptEdit | None = None
