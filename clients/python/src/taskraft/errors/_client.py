"""Errors that the client itself raises, without an answer from a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft.errors._taskraft_error import TaskraftError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ClientClosed(TaskraftError):
    """The client or the subscription was closed before or during the call."""

    reason = "CLIENT_CLOSED"
    code = "CANCELLED"


class ClientForked(TaskraftError):
    """This process was forked from a process with a connected client.

    Threads and connections do not survive a fork. Fork before the first call, close all clients
    before forking, or start processes with the method "spawn".
    """

    reason = "CLIENT_FORKED"
    code = "FAILED_PRECONDITION"


class DeadlinePassed(TaskraftError):
    """The deadline of the call has passed; a change may still take effect."""

    reason = "DEADLINE_PASSED"
    code = "DEADLINE_EXCEEDED"
    advice = (
        "A change may have taken effect: check before you repeat it. If the error persists, "
        "`taskraft cluster status` shows whether a majority of the nodes is up."
    )


class PayloadNotJson(TaskraftError, ValueError):
    """The payload of a task is not JSON; the message names the task."""

    reason = "PAYLOAD_NOT_JSON"
    code = "INVALID_ARGUMENT"
    advice = (
        "Read the payload with text() or payload. A put sends a str and bytes unchanged, and any "
        "other value as JSON."
    )


class ItemsRefused(TaskraftError):
    """Some items of a list were refused; all other items succeeded.

    Attributes:
        refused: error by position of the item in the list.
        task_ids: for puts: one id per item, 0 for a refused item.
    """

    reason = "ITEMS_REFUSED"

    def __init__(
        self, refused: Mapping[int, TaskraftError], *, task_ids: Sequence[int] = (), items: int
    ) -> None:
        first_item, first = next(iter(refused.items()))
        super().__init__(
            f"{len(refused)} of {items} items were refused; "
            f"item {first_item}: {first.reason}: {first}"
        )
        self.refused: Mapping[int, TaskraftError] = refused
        self.task_ids = task_ids
