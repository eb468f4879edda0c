"""Do several operations that succeed or fail together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from service.queue.commands.circulation import Bury, CountResult, Delete, Kick
from service.queue.commands.intervention import UpdateTasks
from service.queue.commands.put import Put, PutResult
from service.queue.commands.settle import Settle, SettleResult
from service.queue.values import value

BatchOperation: TypeAlias = Put | Settle | Kick | Bury | Delete | UpdateTasks
BatchOutcome: TypeAlias = PutResult | SettleResult | CountResult


@value
class Batch:
    """Do operations in order, all or none. Answer: ``BatchResult``.

    Each names its tasks by id, key or lease, and each task is named once, so that what one does
    cannot decide what another may do.
    """

    operations: Sequence[BatchOperation]
    request_id: str = ""
    request_hash: int = 0


@value
class BatchResult:
    """One result per operation; no item was refused."""

    results: Sequence[BatchOutcome]
