"""Execute several operations in one command, all or none.

All operations are checked before any is executed, so that none is refused later; see
``batch_draft.py``. ``PARTS`` has the operations that a batch can have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from taskraft_service.queue.entities.new_task import TaskReference
from taskraft_service.queue.entities.refusal import CountResult, Reason, Refusal, first_of, within
from taskraft_service.queue.operations import (
    kick_bury_delete,
    move,
    put,
    settle,
    update_tasks,
)
from taskraft_service.queue.operations.batch_checks import check_put, check_settle
from taskraft_service.queue.operations.batch_draft import BatchDraft
from taskraft_service.queue.operations.command_definition import (
    COUNT_ANSWER,
    AnswerCodec,
    CommandDefinition,
    ReadyPrediction,
    Violation,
    shown_answer,
)
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.put import Put, PutResult
from taskraft_service.queue.operations.settlements import Settle, SettleResult
from taskraft_service.queue.operations.task_change import (
    SelectsTasks,
    TaskChange,
    apply_selected,
    check_selected,
)
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import Side, SideLookup, union_of_sides
from taskraft_service.queue.store.fields import Blobs
from taskraft_service.queue.values import value

BatchOperation: TypeAlias = Put | Settle | Kick | Bury | Delete | UpdateTasks | Move
BatchOutcome: TypeAlias = PutResult | SettleResult | CountResult


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


C = TypeVar("C")
R = TypeVar("R")
S = TypeVar("S", bound=SelectsTasks)


@dataclass(frozen=True, slots=True)
class BatchPart(Generic[C, R]):
    """The parts of a command that a batch needs.

    Args:
        branch: name of the operation in the contract.
        definition: definition of the command.
        check: adds the operation to a draft; returns why it cannot be executed, or None.
        apply: executes a checked operation.
    """

    branch: str
    definition: CommandDefinition[C, R]
    check: Callable[[BatchDraft, C], Refusal | None]
    apply: Callable[[BatchDraft, C], R | Refusal]


def _apply_put(draft: BatchDraft, command: Put) -> PutResult | Refusal:
    result = put.put(draft.state, command, draft.placed, is_admitted=True)
    if isinstance(result, PutResult):
        draft.placed += [TaskReference(command.tube, task_id) for task_id in result.ids]
    return result


def _apply_settle(draft: BatchDraft, command: Settle) -> SettleResult:
    return settle.settle_checked(draft.state, command)


def _part(
    branch: str, definition: CommandDefinition[S, CountResult], change: TaskChange[S]
) -> BatchPart[S, CountResult]:
    """Return the part of a command that changes selected tasks."""
    return BatchPart(
        branch, definition, partial(check_selected, change), partial(apply_selected, change)
    )


PARTS: Final[Mapping[type, BatchPart[Any, Any]]] = {
    part.definition.command: part
    for part in (
        BatchPart("put", put.DEFINITION, check_put, _apply_put),
        BatchPart("settle", settle.DEFINITION, check_settle, _apply_settle),
        _part("kick", kick_bury_delete.KICK, kick_bury_delete.KICKING),
        _part("bury", kick_bury_delete.BURY, kick_bury_delete.BURYING),
        _part("delete", kick_bury_delete.DELETE, kick_bury_delete.DELETING),
        _part("update", update_tasks.DEFINITION, update_tasks.UPDATING),
        _part("move", move.DEFINITION, move.MOVING),
    )
}
"""The parts of batches by the type of their command."""


def execute_batch(state: QueueState, command: ExecuteBatch) -> BatchResult | Refusal:
    """Execute all operations, or return the first refusal with the violations of all."""
    draft = BatchDraft(state)
    refusals = [
        _of_operation(place, operation, refusal)
        for place, operation in enumerate(command.operations)
        if (refusal := PARTS[type(operation)].check(draft, operation)) is not None
    ]
    if refusals:
        return first_of(refusals)
    refusal = draft.room.refusal()
    if refusal is not None:
        return refusal
    return BatchResult([_apply(draft, operation) for operation in command.operations])


def _apply(draft: BatchDraft, operation: BatchOperation) -> BatchOutcome:
    result: BatchOutcome | Refusal = PARTS[type(operation)].apply(draft, operation)
    assert not isinstance(result, Refusal), f"a checked operation was refused: {result}"
    return result


def _of_operation(place: int, operation: BatchOperation, refusal: Refusal) -> Refusal:
    """Return the refusal of the batch for the refusal of one of its operations."""
    path = f"operations[{place}]"
    metadata = {**refusal.metadata, "operation": str(place)}
    if refusal.reason is Reason.INVALID_FIELD and "field" not in metadata:
        metadata["field"] = path
        return replace(refusal, metadata=metadata, violations=((path, refusal.message),))
    refusal = replace(refusal, metadata=metadata)
    return within(refusal, f"{path}.{PARTS[type(operation)].branch}.")


_ANSWER_OF: Final[Mapping[type, AnswerCodec[Any]]] = {
    PutResult: put.ANSWER,
    SettleResult: settle.ANSWER,
    CountResult: COUNT_ANSWER,
}
_ANSWERS: Final = {kind: codec for codec in _ANSWER_OF.values() for kind in codec.kinds}


def _predict(prediction: ReadyPrediction, command: ExecuteBatch) -> None:
    nested = ReadyPrediction(prediction.state, prediction.now_ms)
    for operation in command.operations:
        PARTS[type(operation)].definition.predict(nested, operation)
    for tube, tasks in nested.counts().items():
        prediction.add_put(tube, tasks)


def _side(command: ExecuteBatch, side_lookup: SideLookup) -> Side:
    return union_of_sides(
        PARTS[type(operation)].definition.side(operation, side_lookup)
        for operation in command.operations
    )


def _side_violations(
    command: ExecuteBatch, side: Side, side_lookup: SideLookup, _path: str
) -> Iterator[Violation]:
    """Yield the operations on temporary tubes if others address replicated tubes."""
    for place, operation in enumerate(command.operations):
        part = PARTS[type(operation)]
        of_operation = part.definition.side(operation, side_lookup)
        field = f"operations[{place}]"
        if side is Side.BOTH and Side.MEMORY in of_operation:
            yield field, "names a temporary tube, but other operations name replicated tubes"
        else:
            path = f"{field}.{part.branch}."
            yield from part.definition.side_violations(
                operation, of_operation or side, side_lookup, path
            )


def _growth_bytes(command: ExecuteBatch) -> int:
    return sum([PARTS[type(one)].definition.growth_bytes(one) for one in command.operations])


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
    items=lambda command: sum(
        [PARTS[type(one)].definition.items(one) for one in command.operations]
    ),
)
