"""Lease tasks."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.values import value


@value
class Take:
    """Lease ready tasks of some tubes to a session, or for a time. Answer: ``TakeResult``.

    ``weights``: shares of the tubes, one for each; without them tasks go by urgency over all tubes.
    """

    tubes: Sequence[str]
    session_id: str = ""
    tasks_max: int = 1
    bytes_max: int = 3 * 1024 * 1024
    ttr_ms: int | None = None
    types: Sequence[str] = ()
    priority_bound: int | None = None
    task_id: int | None = None
    request_id: str = ""
    request_hash: int = 0
    weights: Sequence[int] = ()


@value
class TakeResult:
    """The leased tasks in order.

    ``cut_short``: the take passed by as many tasks as it may that are not urgent enough; behind
    them may be others that are. Is not kept with the answer to a ``request_id``.
    """

    tasks: Sequence[TaskView]
    cut_short: bool = False
