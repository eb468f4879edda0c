"""Move tasks that nobody settles."""

from __future__ import annotations

from collections.abc import Sequence

from service.queue.commands.refusal import ItemRefusal
from service.queue.commands.task import Failure
from service.queue.commands.update import TaskUpdate
from service.queue.values import value


@value
class Kick:
    """Make buried tasks ready: the first ``count``, or chosen ones. Answer: ``CountResult``."""

    tube: str
    count: int = 1
    ids: Sequence[int] = ()
    delay_ms: int = 0
    request_id: str = ""
    request_hash: int = 0
    update: TaskUpdate | None = None


@value
class Bury:
    """Bury ready or delayed tasks by id. Answer: ``CountResult``."""

    tube: str
    ids: Sequence[int]
    failure: Failure | None = None
    request_id: str = ""
    request_hash: int = 0


@value
class Delete:
    """Remove tasks in any state by id. Answer: ``CountResult``."""

    tube: str
    ids: Sequence[int]
    request_id: str = ""
    request_hash: int = 0


@value
class CountResult:
    """How many tasks were affected, and the refused items."""

    count: int
    refused: Sequence[ItemRefusal] = ()
