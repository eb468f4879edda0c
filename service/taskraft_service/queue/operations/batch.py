"""Execute several operations in one command, all or none.

All operations are checked before any operation is executed; see ``batch_checks.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, assert_never

from taskraft_service.queue.entities.new_task import TaskReference
from taskraft_service.queue.entities.refusal import CountResult, Reason, Refusal, first_of, within
from taskraft_service.queue.operations import kick_bury_delete
from taskraft_service.queue.operations import move as move_module
from taskraft_service.queue.operations import put as put_module
from taskraft_service.queue.operations import settle as settle_module
from taskraft_service.queue.operations import update_tasks as update_module
from taskraft_service.queue.operations.batch_checks import (
    BATCH_BRANCHES,
    BatchChecks,
    BatchOperation,
    BatchOutcome,
)
from taskraft_service.queue.operations.command_definition import (
    COUNT_ANSWER,
    AnswerCodec,
    CommandDefinition,
    ReadyPrediction,
    Violation,
    shown_answer,
)
from taskraft_service.queue.operations.kick_bury_delete import (
    Bury,
    Delete,
    Kick,
    bury,
    delete,
    kick,
)
from taskraft_service.queue.operations.move import Move, move_tasks
from taskraft_service.queue.operations.put import Put, PutResult, put
from taskraft_service.queue.operations.settle import settle_checked
from taskraft_service.queue.operations.settlements import Settle, SettleResult
from taskraft_service.queue.operations.update_tasks import UpdateTasks, update_tasks
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import Side, SideLookup, union_of_sides
from taskraft_service.queue.store.fields import Blobs
from taskraft_service.queue.values import value


@value
class ExecuteBatch:
    """Execute operations in order, all or none.

    Answer: ``BatchResult``.

    Operations name their tasks by id, key or lease. Each task is named once, so no operation
    depends on the effect of another operation.
    """

    operations: Sequence[BatchOperation]
    request_id: str = ""
    request_hash: int = 0


@value
class BatchResult:
    """One result per operation; no item was refused."""

    results: Sequence[BatchOutcome]


def execute_batch(state: QueueState, command: ExecuteBatch) -> BatchResult | Refusal:
    """Execute all operations, or return the first refusal with the violations of all."""
    check = BatchChecks(state)
    refusals = [
        _of_operation(place, operation, refusal)
        for place, operation in enumerate(command.operations)
        if (refusal := check.refusal_of_operation(operation)) is not None
    ]
    if refusals:
        return first_of(refusals)
    refusal = check.room.refusal()
    if refusal is not None:
        return refusal
    placed: list[TaskReference] = []
    return BatchResult([_do(state, operation, placed) for operation in command.operations])


def _of_operation(place: int, operation: BatchOperation, refusal: Refusal) -> Refusal:
    """Return the refusal of the batch for the refusal of one of its operations."""
    path = f"operations[{place}]"
    metadata = {**refusal.metadata, "operation": str(place)}
    if refusal.reason is Reason.INVALID_FIELD and "field" not in metadata:
        metadata["field"] = path
        return replace(refusal, metadata=metadata, violations=((path, refusal.message),))
    refusal = replace(refusal, metadata=metadata)
    return within(refusal, f"{path}.{BATCH_BRANCHES[type(operation)]}.")


def _do(state: QueueState, operation: BatchOperation, placed: list[TaskReference]) -> BatchOutcome:
    """Execute a checked operation; ``placed`` has the tasks of the earlier puts."""
    result: BatchOutcome | Refusal
    match operation:
        case Put():
            result = put(state, operation, placed, is_admitted=True)
            if isinstance(result, PutResult):
                placed += [TaskReference(operation.tube, task_id) for task_id in result.ids]
        case Settle():
            return settle_checked(state, operation)
        case Kick():
            result = kick(state, operation, is_admitted=True)
        case Bury():
            result = bury(state, operation)
        case Delete():
            result = delete(state, operation)
        case UpdateTasks():
            result = update_tasks(state, operation, is_admitted=True)
        case Move():
            result = move_tasks(state, operation, is_admitted=True)
        case _:
            assert_never(operation)
    assert not isinstance(result, Refusal), f"a checked operation was refused: {result}"
    return result


BATCHABLE: Final[Mapping[type, CommandDefinition[Any, Any]]] = {
    definition.command: definition
    for definition in (
        put_module.DEFINITION,
        settle_module.DEFINITION,
        kick_bury_delete.KICK,
        kick_bury_delete.BURY,
        kick_bury_delete.DELETE,
        update_module.DEFINITION,
        move_module.DEFINITION,
    )
}
"""Definitions of the commands that a batch can hold, by type."""
_ANSWER_OF: Final[Mapping[type, AnswerCodec[Any]]] = {
    PutResult: put_module.ANSWER,
    SettleResult: settle_module.ANSWER,
    CountResult: COUNT_ANSWER,
}
_ANSWERS: Final = {kind: codec for codec in _ANSWER_OF.values() for kind in codec.kinds}


def _predict(prediction: ReadyPrediction, command: ExecuteBatch) -> None:
    nested = ReadyPrediction(prediction.state, prediction.now_ms)
    for operation in command.operations:
        BATCHABLE[type(operation)].predict(nested, operation)
    for tube, tasks in nested.counts().items():
        prediction.add_put(tube, tasks)


def _side(command: ExecuteBatch, side_lookup: SideLookup) -> Side:
    return union_of_sides(
        BATCHABLE[type(operation)].side(operation, side_lookup) for operation in command.operations
    )


def _side_violations(
    command: ExecuteBatch, side: Side, side_lookup: SideLookup, _path: str
) -> Iterator[Violation]:
    """Yield the operations on temporary tubes if others address replicated tubes."""
    for place, operation in enumerate(command.operations):
        definition = BATCHABLE[type(operation)]
        of_operation = definition.side(operation, side_lookup)
        field = f"operations[{place}]"
        if side is Side.BOTH and Side.MEMORY in of_operation:
            yield field, "names a temporary tube, but other operations name replicated tubes"
        else:
            path = f"{field}.{BATCH_BRANCHES[type(operation)]}."
            yield from definition.side_violations(
                operation, of_operation or side, side_lookup, path
            )


def _growth_bytes(command: ExecuteBatch) -> int:
    return sum([BATCHABLE[type(one)].growth_bytes(one) for one in command.operations])


def _parts_of(answer: BatchResult) -> Sequence[bytes]:
    return [_ANSWER_OF[type(one)].write(one) for one in answer.results]


def _show(state: QueueState, parts: Sequence[bytes]) -> BatchResult:
    results: list[BatchOutcome] = []
    for part in parts:
        result = _ANSWERS[part[0]].repeat(state, part)
        assert not isinstance(result, Refusal), "a kept batch holds no refusal"
        results.append(result)
    return BatchResult(results)


DEFINITION: Final = CommandDefinition(
    ExecuteBatch,
    execute_batch,
    predict=_predict,
    side=_side,
    answer=shown_answer(31, _show, Blobs("parts", of=_parts_of)),
    side_violations=_side_violations,
    growth_bytes=_growth_bytes,
    items=lambda command: sum([BATCHABLE[type(one)].items(one) for one in command.operations]),
)
