"""What goes wrong in the client itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft.errors._taskraft_error import TaskraftError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class DeadlinePassed(TaskraftError):
    """Tell that the time allowed for the call was over; a change may still take effect."""

    reason = "DEADLINE_PASSED"
    code = "DEADLINE_EXCEEDED"
    advice = (
        "A change may have had its effect: look before you repeat it. If it lasts, "
        "`taskraft cluster status` tells whether a majority of the nodes is there."
    )


class ItemsRefused(TaskraftError):
    """Tell that some items of a list were refused; all others have succeeded.

    Attributes:
        refused: Why, by position of the item in the list.
        task_ids: For puts: one id per item, 0 where it was refused.
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


class ClientClosed(TaskraftError):
    """Tell that the client or the subscription was closed before or during the call."""

    reason = "CLIENT_CLOSED"
    code = "CANCELLED"


class ClientForked(TaskraftError):
    """Tell that this process was forked from one with a connected client.

    Threads and connections do not survive a fork. Fork before the first call, close all clients
    before forking, or start processes with the method "spawn".
    """

    reason = "CLIENT_FORKED"
    code = "FAILED_PRECONDITION"
