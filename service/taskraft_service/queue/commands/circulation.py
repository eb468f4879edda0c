"""Move tasks that nobody settles."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_service.queue.entities.position import Position
from taskraft_service.queue.entities.refusal import ItemRefusal
from taskraft_service.queue.entities.selector import Selector
from taskraft_service.queue.entities.task_update import TaskUpdate
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.values import value


@value
class Kick:
    """Make buried tasks ready: the first ``count``, or chosen ones. Answer: ``CountResult``."""

    tube: str
    count: int = 1
    selector: Selector | None = None
    delay_ms: int = 0
    request_id: str = ""
    request_hash: int = 0
    update: TaskUpdate | None = None


@value
class Bury:
    """Bury ready and delayed tasks. Answer: ``CountResult``."""

    tube: str
    selector: Selector
    failure: Failure | None = None
    request_id: str = ""
    request_hash: int = 0


@value
class Delete:
    """Remove tasks in any state. Answer: ``CountResult``."""

    tube: str
    selector: Selector
    request_id: str = ""
    request_hash: int = 0


@value
class Move:
    """Move ready, delayed and buried tasks to another tube. Answer: ``CountResult``.

    Args:
        tube: where they are.
        selector: which.
        move_to: where they go; empty: dead letters go back to where they come from, others stay.
        delay_ms: None: a delayed task stays so until its time, the others become ready.
        position: of those that become ready.
        renew_times: they live and run as long as the other tube says, from now on. Dead letters
            that go back do so anyway.
        update: changes together with the move, judged by the other tube.
    """

    tube: str
    selector: Selector
    move_to: str = ""
    delay_ms: int | None = None
    position: Position = Position.IN_ORDER
    renew_times: bool = False
    request_id: str = ""
    request_hash: int = 0
    update: TaskUpdate | None = None


@value
class CountResult:
    """How many tasks were affected, and the refused items.

    ``continue_after_id``: a filter was not done with the tasks above this id; 0: it was.
    """

    count: int
    refused: Sequence[ItemRefusal] = ()
    continue_after_id: int = 0
