"""The answer of commands that affect several tasks."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_service.queue.entities.refusal import ItemRefusal
from taskraft_service.queue.values import value


@value
class CountResult:
    """Number of affected tasks, and the refused items.

    ``continue_after_id``: a filter did not scan the tasks above this id; 0: it scanned all.
    """

    count: int
    refused: Sequence[ItemRefusal] = ()
    continue_after_id: int = 0
