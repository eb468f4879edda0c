"""Do several operations that succeed or fail together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from taskraft_service.queue.commands.circulation import Bury, CountResult, Delete, Kick, Move
from taskraft_service.queue.commands.intervention import UpdateTasks
from taskraft_service.queue.commands.put import Put, PutResult
from taskraft_service.queue.commands.settle import Settle, SettleResult
from taskraft_service.queue.values import value

BatchOperation: TypeAlias = Put | Settle | Kick | Bury | Delete | UpdateTasks | Move
BATCH_BRANCHES: Final[Mapping[type[BatchOperation], str]] = {
    Put: "put",
    Settle: "settle",
    Kick: "kick",
    Bury: "bury",
    Delete: "delete",
    UpdateTasks: "update",
    Move: "move",
}
"""What the operations of a batch are called in the contract."""
BatchOutcome: TypeAlias = PutResult | SettleResult | CountResult


@value
class ExecuteBatch:
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
