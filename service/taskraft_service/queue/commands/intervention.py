"""Change chosen tasks from outside: what an administrator does, and what takes no turn."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_service.queue.entities.refusal import ItemRefusal
from taskraft_service.queue.entities.selector import Selector
from taskraft_service.queue.entities.task_update import TaskUpdate
from taskraft_service.queue.entities.task_view import State
from taskraft_service.queue.values import value


@value
class UpdateTasks:
    """Change held, ready, delayed and buried tasks. Answer: ``CountResult``."""

    tube: str
    selector: Selector
    update: TaskUpdate
    request_id: str = ""
    request_hash: int = 0


@value
class Snatch:
    """Take leases from their holders; the attempts count. Answer: ``CountResult``."""

    tube: str
    selector: Selector
    delay_ms: int = 0
    request_id: str = ""
    request_hash: int = 0


@value
class Restart:
    """Begin delayed, buried and kept tasks anew. Answer: ``CountResult``.

    Ready and taken tasks stay as they are and are not counted.
    """

    tube: str
    selector: Selector
    delay_ms: int = 0
    request_id: str = ""
    request_hash: int = 0


@value
class Switch:
    """Move tasks that nobody holds to READY, DELAYED, BURIED, DONE or ZOMBIE.

    Answer: ``CountResult``. ``duration_ms``: how long a delayed task is hidden, a zombie kept.
    """

    tube: str
    selector: Selector
    state: State
    duration_ms: int = 0
    request_id: str = ""
    request_hash: int = 0


@value
class Cancel:
    """Ask the holders of tasks to stop, and remove the others. Answer: ``CancelResult``."""

    tube: str
    selector: Selector
    request_id: str = ""
    request_hash: int = 0


@value
class CancelResult:
    """How many holders were asked, how many tasks removed; the rest as in ``CountResult``."""

    asked: int
    removed: int
    refused: Sequence[ItemRefusal] = ()
    continue_after_id: int = 0
