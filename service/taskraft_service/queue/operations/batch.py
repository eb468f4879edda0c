"""Do several operations in one command, all or none: an acknowledgement and what follows from it.

Everything is checked before anything is done, see ``batch_checks.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from taskraft_service.queue.commands.batch import BATCH_BRANCHES, BatchResult, ExecuteBatch
from taskraft_service.queue.commands.circulation import Bury, Delete, Kick, Move
from taskraft_service.queue.commands.intervention import UpdateTasks
from taskraft_service.queue.commands.put import Put, PutResult
from taskraft_service.queue.commands.settle import Settle
from taskraft_service.queue.entities.dependencies import TaskReference
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.refusals import first_of, within
from taskraft_service.queue.operations.batch_checks import BatchChecks
from taskraft_service.queue.operations.circulation import bury, delete, kick
from taskraft_service.queue.operations.moves import move_tasks
from taskraft_service.queue.operations.put import put
from taskraft_service.queue.operations.settle import settle_checked
from taskraft_service.queue.operations.update import update_tasks

if TYPE_CHECKING:
    from taskraft_service.queue.commands.batch import BatchOperation, BatchOutcome
    from taskraft_service.queue.state.queue_state import QueueState


def execute_batch(ledger: QueueState, command: ExecuteBatch) -> BatchResult | Refusal:
    """Do all operations, or say which ones stand in the way of all; the first is told whole."""
    check = BatchChecks(ledger)
    refusals = [
        _of_operation(place, operation, refusal)
        for place, operation in enumerate(command.operations)
        if (refusal := check.operation(operation)) is not None
    ]
    if refusals:
        return first_of(refusals)
    refusal = check.room.refusal()
    if refusal is not None:
        return refusal
    placed: list[TaskReference] = []
    return BatchResult([_do(ledger, operation, placed) for operation in command.operations])


def _of_operation(place: int, operation: BatchOperation, refusal: Refusal) -> Refusal:
    """Return the refusal of the batch for one of its operations."""
    path = f"operations[{place}]"
    metadata = {**refusal.metadata, "operation": str(place)}
    if refusal.reason is Reason.INVALID_FIELD and "field" not in metadata:
        metadata["field"] = path
        return replace(refusal, metadata=metadata, violations=((path, refusal.message),))
    refusal = replace(refusal, metadata=metadata)
    return within(refusal, f"{path}.{BATCH_BRANCHES[type(operation)]}.")


def _do(ledger: QueueState, operation: BatchOperation, placed: list[TaskReference]) -> BatchOutcome:
    """Do an operation that was checked; ``placed`` are the tasks of the puts before it."""
    result: BatchOutcome | Refusal
    match operation:
        case Put():
            result = put(ledger, operation, placed, is_owed=True)
            if isinstance(result, PutResult):
                placed += [TaskReference(operation.tube, task_id) for task_id in result.ids]
        case Settle():
            return settle_checked(ledger, operation)
        case Kick():
            result = kick(ledger, operation, is_owed=True)
        case Bury():
            result = bury(ledger, operation)
        case Delete():
            result = delete(ledger, operation)
        case UpdateTasks():
            result = update_tasks(ledger, operation, is_owed=True)
        case Move():
            result = move_tasks(ledger, operation, is_owed=True)
        case _:
            assert_never(operation)
    assert not isinstance(result, Refusal), f"a checked operation was refused: {result}"
    return result
