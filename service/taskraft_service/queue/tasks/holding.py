"""Let held tasks go when nothing holds them any more: neither their group nor a dependency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft_service.queue.entities.instants import NEVER_MS
from taskraft_service.queue.life_cycle import DELAYED, HELD, READY
from taskraft_service.queue.tasks.transitions import move

if TYPE_CHECKING:
    from taskraft_service.queue.ledger import Ledger
    from taskraft_service.queue.life_cycle import EventKind
    from taskraft_service.queue.tasks.task import Task


def let_go_if_free(ledger: Ledger, task: Task, kind: EventKind) -> None:
    """Let a held task go, unless something else holds it: it is ready, or delayed until its time.

    ``kind`` is what held it last.
    """
    assert task.state is HELD
    if task.extras.waiting is not None or ledger.groups.holds(task):
        return
    state = DELAYED if ledger.now_ms < task.visible_at_ms < NEVER_MS else READY
    if state is READY:
        task.visible_at_ms = NEVER_MS
    move(ledger, task, kind, state)
    ledger.news.wake(task.tube)
