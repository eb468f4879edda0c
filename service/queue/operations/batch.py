"""Do several operations in one command, all or none: an acknowledgement and what follows from it.

Everything is checked before anything is done. That is exact because each task is named once: no
operation of a batch changes a task that another one is about. Only room in a tube depends on
several operations, and that is reckoned for all of them together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from service.queue.commands import (
    Ack,
    Batch,
    BatchResult,
    Bury,
    ByFilter,
    Delete,
    ItemReference,
    Kick,
    OnConflict,
    Put,
    PutResult,
    Reason,
    Refusal,
    Settle,
    TaskReference,
    UpdateTasks,
)
from service.queue.dependencies.references import no_item, refusal_of_reference
from service.queue.life_cycle import BURIED, DELAYED, FINISHED, READY
from service.queue.operations.acknowledge import leaves_on_ack, stale
from service.queue.operations.circulation import bury, delete, kick, kick_update_refusal
from service.queue.operations.intake import existing_task
from service.queue.operations.put import put, refusal_to_put, task_refusal
from service.queue.operations.reckoning import reckon
from service.queue.operations.selection import named
from service.queue.operations.settle import settle_checked, unsuitable
from service.queue.operations.update import update_refusal, update_tasks
from service.queue.refusals import at_item, delay_unsuitable, key_taken, wrong_state
from service.queue.tasks.updating import growth
from service.queue.tubes.room import Room

if TYPE_CHECKING:
    from service.queue.commands import (
        BatchOperation,
        BatchOutcome,
        Dependencies,
        NewTask,
        Settlement,
    )
    from service.queue.ledger import Ledger
    from service.queue.tasks.task import Task
    from service.queue.tubes.tube import Tube


def execute_batch(ledger: Ledger, command: Batch) -> BatchResult | Refusal:
    """Do all operations, or say which one stands in the way of all."""
    check = _Check(ledger)
    for place, operation in enumerate(command.operations):
        refusal = check.operation(operation)
        if refusal is not None:
            return _of_operation(place, refusal)
    refusal = check.room.refusal()
    if refusal is not None:
        return refusal
    placed: list[TaskReference] = []
    return BatchResult([_do(ledger, operation, placed) for operation in command.operations])


def _of_operation(place: int, refusal: Refusal) -> Refusal:
    path = f"operations[{place}]"
    metadata = {**refusal.metadata, "operation": str(place)}
    field = refusal.metadata.get("field")
    if field or refusal.reason is Reason.INVALID_FIELD:
        metadata["field"] = f"{path}.{field}" if field else path
    violations = tuple((f"{path}.{field}", text) for field, text in refusal.violations)
    return replace(refusal, metadata=metadata, violations=violations)


def _do(ledger: Ledger, operation: BatchOperation, placed: list[TaskReference]) -> BatchOutcome:
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
        case _:
            assert_never(operation)
    assert not isinstance(result, Refusal), f"a checked operation was refused: {result}"
    return result


def _named_and_awaited(task: Task) -> Refusal:
    return Refusal(
        Reason.INVALID_FIELD,
        f"task {task.id} of {task.tube.name!r} is depended on and named by another operation",
        {"tube": task.tube.name, "task_id": str(task.id)},
    )


class _Check:
    """What the operations that were looked at need and name."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._named: set[tuple[int, int]] = set()
        self._awaited: set[tuple[int, int]] = set()
        self._items = 0
        """Items of the puts so far."""
        self.room = Room()
        self._keys: set[tuple[int, tuple[str, ...]]] = set()
        self._freed: dict[tuple[int, tuple[str, ...]], int] = {}
        """Unique keys that are put, and those that are free before they are; by tube.

        The value is the finished task that keeps the key until then, 0 where it is gone.
        """

    def operation(self, operation: BatchOperation) -> Refusal | None:
        """Return why an operation cannot be done, or None."""
        match operation:
            case Put():
                return self._put(operation)
            case Settle():
                return self._settle(operation)
            case Kick() | Bury() | Delete() | UpdateTasks():
                return self._chosen(operation)
            case _:
                assert_never(operation)

    def _name(self, task: Task) -> Refusal | None:
        """Note that an operation is about a task; refuse the second one."""
        place = (task.tube.number, task.id)
        if place in self._named:
            return Refusal(
                Reason.INVALID_FIELD,
                f"task {task.id} of {task.tube.name!r} is named twice in one batch",
                {"tube": task.tube.name, "task_id": str(task.id)},
            )
        self._named.add(place)
        return _named_and_awaited(task) if place in self._awaited else None

    def _put(self, command: Put) -> Refusal | None:
        tube = self._ledger.tube(command.tube)
        if isinstance(tube, Refusal):
            return tube
        refusal = refusal_to_put(tube)
        if refusal is not None:
            return refusal
        for item, task in enumerate(command.tasks):
            refusal = (
                task_refusal(self._ledger, tube, task)
                or self._depends(task.dependencies)
                or self._new(tube, task)
            )
            if refusal is not None:
                return at_item(item, refusal, f"put.tasks[{item}].")
            self._items += 1
        return None

    def _depends(self, dependencies: Dependencies | None) -> Refusal | None:
        """Return why a task of a put cannot depend on what it names, or None.

        No other operation of the batch may be about that, so that it is there, as it is, until the
        put is done.
        """
        for place, reference in enumerate(dependencies.on if dependencies is not None else ()):
            if isinstance(reference, ItemReference):
                if not 0 <= reference.item < self._items:
                    return no_item(place, reference)
                continue
            refusal = refusal_of_reference(self._ledger, place, reference)
            if refusal is not None:
                return refusal
            task = self._ledger.find(self._ledger.tubes[reference.tube], reference.id)
            assert task is not None
            self._awaited.add((task.tube.number, task.id))
            if (task.tube.number, task.id) in self._named:
                return _named_and_awaited(task)
        return None

    def _new(self, tube: Tube, task: NewTask) -> Refusal | None:
        """Return why a new task may not have its unique key, or None.

        A key that an earlier operation of the batch makes free may be used again; but each key is
        put once.
        """
        key = (tube.number, task.unique_key)
        kept = self._freed.get(key, 0)
        if kept and any(state in FINISHED for state in task.unique_among.states):
            return key_taken(kept)
        if task.unique_key and key not in self._freed:
            if key in self._keys:
                text = "a unique key is put twice in one batch"
                return Refusal(Reason.INVALID_FIELD, text, {"field": "unique_key"})
            self._keys.add(key)
            existing = existing_task(self._ledger, tube, task, {})
            if isinstance(existing, Refusal):
                return existing
            there = self._ledger.find(tube, existing) if existing is not None else None
            if there is not None:
                if task.on_conflict is OnConflict.REPLACE_IF_WAITING:
                    self.room.comes(tube, 0, task.payload_bytes - there.payload_bytes)
                return self._name(there)
        self._freed.pop(key, None)
        self._keys.add(key)
        self.room.comes(tube, 1, task.payload_bytes)
        return None

    def _ends(self, task: Task, *, is_kept: bool) -> None:
        """Note that an operation ends a task: the key is free from then on, if the task has it."""
        place = (task.tube.number, task.extras.unique_key)
        if task.extras.unique_key and self._ledger.unique_keys.find(*place) == task.id:
            self._freed[place] = task.id if is_kept else 0

    def _settle(self, command: Settle) -> Refusal | None:
        item = 0
        for settlement in command.settlements:
            for place, token in enumerate(settlement.tokens, item):
                task = self._ledger.leases.get(token)
                refusal = stale(token) if task is None else self._settle_one(task, settlement)
                if refusal is not None:
                    return at_item(place, refusal)
            item += len(settlement.tokens)
        return None

    def _settle_one(self, task: Task, settlement: Settlement) -> Refusal | None:
        """Return why a lease cannot be settled like this, or None."""
        refusal = self._name(task) or unsuitable(self._ledger, task, settlement)
        if refusal is None:
            if isinstance(settlement, Ack):
                self._ends(task, is_kept=not leaves_on_ack(task.tube, settlement))
            reckon(self._ledger, self.room, task, settlement)
        return refusal

    def _chosen(self, command: Kick | Bury | Delete | UpdateTasks) -> Refusal | None:
        tube = self._ledger.tube(command.tube)
        if isinstance(tube, Refusal):
            return tube
        selector = command.selector
        if selector is None or isinstance(selector, ByFilter):
            text = "an operation of a batch names its tasks by id or key"
            return Refusal(Reason.INVALID_FIELD, text, {"field": "selector"})
        if isinstance(command, Kick):
            unsuitable = delay_unsuitable(tube, "delay_ms", command.delay_ms)
            if unsuitable is not None:
                return unsuitable
        for item, task in enumerate(named(self._ledger, tube, selector)):
            refusal = task if isinstance(task, Refusal) else self._one(command, tube, task)
            if refusal is not None:
                return at_item(item, refusal)
        return None

    def _one(
        self, command: Kick | Bury | Delete | UpdateTasks, tube: Tube, task: Task
    ) -> Refusal | None:
        """Return why an operation cannot be done to one task, or None."""
        refusal = self._name(task)
        if refusal is not None:
            return refusal
        match command:
            case Kick():
                if task.state is not BURIED:
                    return wrong_state(task)
                self.room.comes(tube, 0, growth(self._ledger, task, command.update))
                return kick_update_refusal(self._ledger, task, command)
            case Bury():
                return None if task.state in (READY, DELAYED, BURIED) else wrong_state(task)
            case Delete():
                self._ends(task, is_kept=False)
                self.room.comes(tube, -1, -task.payload_bytes)
                return None
            case UpdateTasks():
                self.room.comes(tube, 0, growth(self._ledger, task, command.update))
                return update_refusal(self._ledger, task, command.update)
            case _:
                assert_never(command)
