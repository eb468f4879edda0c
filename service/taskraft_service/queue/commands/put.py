"""Put tasks into a tube."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import ItemRefusal
from taskraft_service.queue.values import value


@value
class Put:
    """Put tasks, all or each for itself. Answer: ``PutResult``.

    ``waits_for_room``: refuse all where there is no room for all; the caller tries again.
    """

    tube: str
    tasks: Sequence[NewTask]
    atomic: bool = False
    request_id: str = ""
    request_hash: int = 0
    waits_for_room: bool = False


@value
class PutResult:
    """One id per task, 0 where it was refused; ``existing``: places of tasks that were there."""

    ids: Sequence[int]
    refused: Sequence[ItemRefusal] = ()
    existing: Sequence[int] = ()
