"""The answer of commands that affect several tasks."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_service.queue.entities.refusal import ItemRefusal
from taskraft_service.queue.values import value


@value
class CountResult:
    """How many tasks were affected, and the refused items.

    ``continue_after_id``: a filter was not done with the tasks above this id; 0: it was.
    """

    count: int
    refused: Sequence[ItemRefusal] = ()
    continue_after_id: int = 0
