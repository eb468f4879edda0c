"""Put tasks into a tube."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import field
from operator import itemgetter
from typing import Final

from taskraft_service.queue.entities.new_task import NewTask, TaskReference
from taskraft_service.queue.entities.ownership import EVERYBODY, Ownership
from taskraft_service.queue.entities.refusal import (
    REFUSED_ITEMS,
    ItemRefusal,
    Reason,
    Refusal,
    at_item,
    first_of,
)
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.entities.tube_limits import effective_options
from taskraft_service.queue.entities.tube_profiles import suitable_task
from taskraft_service.queue.operations.command_definition import (
    AnswerCodec,
    CommandDefinition,
    ReadyPrediction,
    Violation,
    side_of_tube,
)
from taskraft_service.queue.operations.put_plan import PutPlan, refusal_of_task
from taskraft_service.queue.operations.task_creation import create_with_attributes, settle_conflict
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import Side, SideLookup, out_of_reach
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Constant, Number, Numbers
from taskraft_service.queue.transitions.transition import transition
from taskraft_service.queue.values import value


@value
class Put:
    """Put tasks; with ``atomic`` all or none, otherwise each task separately.

    Answer: ``PutResult``.

    ``waits_for_room``: refuse the put as a whole if the tube lacks capacity for all tasks; the
    leader retries it later. ``owner``: owner of the new tasks with a unique key.
    """

    tube: str
    tasks: Sequence[NewTask]
    atomic: bool = False
    request_id: str = ""
    request_hash: int = 0
    waits_for_room: bool = False
    owner: Ownership = field(default=EVERYBODY, repr=False)


@value
class PutResult:
    """One task id per item; 0 if the item was refused.

    ``existing``: positions of the items whose unique key belongs to an existing task.
    """

    ids: Sequence[int]
    refused: Sequence[ItemRefusal] = ()
    existing: Sequence[int] = ()


TASK_BYTES: Final = 768
"""Approximate memory of a task without its content, in bytes."""
NO_ATTRIBUTES: Final = NewTask(b"", 0)
IN_ORDER: Final = Position.IN_ORDER


def put(
    state: QueueState,
    command: Put,
    before: Sequence[TaskReference] = (),
    *,
    is_admitted: bool = False,
) -> PutResult | Refusal:
    """Put tasks in order; with ``atomic`` all or none.

    ``is_admitted``: neither a pause of the tube nor its quarantine nor its capacity refuses the
    tasks; used for the end task of a group and for batches, which check the capacity beforehand.
    ``before``: the tasks of earlier puts of the same batch.
    """
    tube = state.tubes.find(command.tube)
    if isinstance(tube, Refusal):
        return tube
    refusal = refusal_to_put(tube, is_admitted=is_admitted)
    if refusal is not None:
        return refusal
    tasks = command.tasks
    if tube.rules.ignores_unsupported:
        tasks = [suitable_task(tube.kind, task) for task in tasks]
    sets_attributes = _sets_attributes(tube, tasks)
    is_limited = tube.has_capacity and not is_admitted
    if not sets_attributes and not is_limited:
        return PutResult(_store(state, tube, tasks, sets_attributes=False))
    plan = PutPlan(state, tube, before, command.owner, is_limited=is_limited)
    for task in tasks:
        plan.add(task)
    if command.waits_for_room and plan.over_capacity:
        payload_bytes = sum(task.payload_bytes for task in tasks)
        return tube.refusal_to_grow(len(tasks), payload_bytes) or plan.over_capacity[-1]
    if command.atomic and plan.refused:
        return _refused_whole(plan.refused)
    first_id = tube.next_id
    owner = command.owner.principal
    _store(state, tube, plan.new, plan.restarting(), owner, sets_attributes=sets_attributes)
    tube.counters.note(
        CountedOperation.URGENT, sum(new.position is Position.FRONT for new in plan.new)
    )
    for conflict in plan.conflicts:
        if conflict.task_id < first_id:  # the plan merged other conflicts into new tasks
            settle_conflict(state, tube, conflict)
    return PutResult(plan.ids, plan.refused, [conflict.place for conflict in plan.conflicts])


def _sets_attributes(tube: QueueTube, tasks: Sequence[NewTask]) -> bool:
    """Return whether a task sets an attribute instead of using the tube's default.

    A loop, because it runs for each task of each put and takes half the time of a generator in
    ``any``.
    """
    if tube.driver:
        return True
    knows_subqueues = tube.has_subqueues
    for task in tasks:
        if (
            task.priority is not None
            or task.delay_ms is not None
            or task.ttl_ms is not None
            or task.ttr_ms is not None
            or task.visible_at_ms is not None
            or task.position is not IN_ORDER
            or (task.subqueue and not knows_subqueues)
            or task.retry is not None
            or task.group
            or task.unique_key
            or task.dependencies is not None
        ):
            return True
    return False


def _refused_whole(refused: Sequence[ItemRefusal]) -> Refusal:
    """Return the refusal of an atomic put: the first refused item, with the violations of all."""
    return first_of([at_item(one.item, one.refusal, f"tasks[{one.item}].") for one in refused])


def refusal_to_put(tube: QueueTube, *, is_admitted: bool = False) -> Refusal | None:
    """Return why a tube accepts no task at all, or None."""
    if tube.is_temporary:
        return out_of_reach(tube)
    if is_admitted:
        return None
    if not tube.options.put_paused:
        return tube.refusal_of_quarantine() if tube.quarantined_at else None
    return Refusal(
        Reason.TUBE_PAUSED, "puts into the tube are paused; retry later", {"tube": tube.name}
    )


def refusal_of_new_task(state: QueueState, tube: QueueTube, task: NewTask) -> Refusal | None:
    """Return why a task cannot be put into a tube, or None; the capacity is not checked."""
    if tube.rules.ignores_unsupported:
        task = suitable_task(tube.kind, task)
    return refusal_of_task(state, tube, task)


def _store(
    state: QueueState,
    tube: QueueTube,
    new_tasks: Sequence[NewTask],
    restarting: Collection[TaskReference] = (),
    owner: str = "",
    *,
    sets_attributes: bool,
) -> Sequence[int]:
    """Create the tasks and return their ids.

    This function is on the hot path of producers; see bench/core_cycle.py.
    """
    now_ms = state.now_ms
    first_id = tube.next_id
    if sets_attributes:
        create_with_attributes(state, tube, new_tasks, restarting, owner)
    else:
        terms = effective_options(tube, NO_ATTRIBUTES, now_ms, now_ms)
        made = [
            QueueTask(
                tube, task_id, terms, now_ms, new.body, new.payload_bytes, new.type, new.subqueue
            )
            for task_id, new in enumerate(new_tasks, first_id)
        ]
        if made:
            transition(state, tube, made, terms.operation)
        tube.next_id = first_id + len(made)
    return range(first_id, tube.next_id)


def _predict(prediction: ReadyPrediction, command: Put) -> None:
    put_tasks, tube = prediction.put, command.tube
    put_tasks[tube] = put_tasks.get(tube, 0) + len(command.tasks)


def _side_violations(
    command: Put, side: Side, _side_lookup: SideLookup, path: str
) -> Iterator[Violation]:
    """Yield the fields that are not allowed in a temporary tube: group and dependencies."""
    if side is not Side.MEMORY:
        return
    for place, task in enumerate(command.tasks):
        if task.group:
            yield f"{path}tasks[{place}].group", "not supported in a temporary tube; leave it empty"
        if task.dependencies is not None:
            yield (
                f"{path}tasks[{place}].depends_on",
                "not supported in a temporary tube; leave it empty",
            )


def _growth_bytes(command: Put) -> int:
    return sum(len(task.body) + TASK_BYTES for task in command.tasks)


def _dense(first: int, count: int) -> PutResult:
    return PutResult(range(first, first + count))


_DENSE: Final = FieldTable(
    _dense, Constant("B", 1), Number("first", "Q", of=itemgetter(0)), Number("count", "I", of=len)
)
"""Answer with consecutive ids and without refusals, which is the usual case."""
_LISTED: Final = FieldTable(
    PutResult, Constant("B", 2), Numbers("ids", "Q"), Numbers("existing", "Q"), REFUSED_ITEMS
)


def _write_answer(answer: PutResult) -> bytes:
    ids = answer.ids
    if not answer.refused and not answer.existing and ids and len(ids) == ids[-1] - ids[0] + 1:
        return _DENSE.write(ids)
    return _LISTED.write(answer)


def _repeat_answer(_state: QueueState, kept: bytes) -> PutResult:
    table = _DENSE if kept[0] == 1 else _LISTED
    return table.read(kept)[0]


ANSWER: Final = AnswerCodec((1, 2), _write_answer, _repeat_answer)
DEFINITION: Final = CommandDefinition(
    Put,
    put,
    predict=_predict,
    side=side_of_tube,
    answer=ANSWER,
    side_violations=_side_violations,
    growth_bytes=_growth_bytes,
    items=lambda command: len(command.tasks),
)
