"""Check all operations of a batch before any is executed, so that none is refused later.

The check is exact, because no two operations change the same task. Only capacity and unique keys
depend on several operations. The capacity is estimated for all of them together, and the claimed
and freed keys are tracked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, assert_never

from taskraft_service.queue.entities.new_task import (
    Dependencies,
    ItemReference,
    NewTask,
    OnConflict,
)
from taskraft_service.queue.entities.ownership import Ownership
from taskraft_service.queue.entities.refusal import CountResult, Reason, Refusal, at_item, first_of
from taskraft_service.queue.entities.task_state import BURIED, DELAYED, READY
from taskraft_service.queue.entities.tube import QueueTask, QueueTube, wrong_state
from taskraft_service.queue.entities.tube_limits import CapacityEstimate
from taskraft_service.queue.operations.acknowledge import leaves_on_ack, stale
from taskraft_service.queue.operations.batch_claims import KeyClaims, NamedTasks
from taskraft_service.queue.operations.dependencies import no_item, refusal_of_reference
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.move import (
    Move,
    key_there,
    refusal_of_move,
    refusal_to_move,
    target_of,
)
from taskraft_service.queue.operations.put import (
    Put,
    PutResult,
    refusal_of_new_task,
    refusal_to_put,
)
from taskraft_service.queue.operations.put_plan import refusal_of_owner
from taskraft_service.queue.operations.selection import ByFilter, named
from taskraft_service.queue.operations.settle_checks import (
    add_settlement,
    leases_of,
    refusal_of_settlement,
)
from taskraft_service.queue.operations.settlements import Ack, Settle, Settlement, SettleResult
from taskraft_service.queue.operations.update_tasks import UpdateTasks, refusal_of_update
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.updating import (
    growth,
    refusal_of_attributes,
    refusal_of_change,
    refusal_of_content,
)

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
"""Names of the operations in the contract."""


BatchOutcome: TypeAlias = PutResult | SettleResult | CountResult


ChosenOperation: TypeAlias = Kick | Bury | Delete | UpdateTasks | Move
"""Operations that name their tasks by id or key."""


class BatchChecks:
    """Tasks, keys and capacity that the checked operations need.

    ``room`` is the capacity estimate of all operations; query it after the last operation.
    """

    def __init__(self, state: QueueState) -> None:
        """Start without operations."""
        self._state = state
        self._tasks = NamedTasks()
        self._keys = KeyClaims(state)
        self._items = 0
        """Number of items of the puts so far."""
        self.room = CapacityEstimate()

    def refusal_of_operation(self, operation: BatchOperation) -> Refusal | None:
        """Return why an operation cannot be executed, or None."""
        match operation:
            case Put():
                return self._refusal_of_put(operation)
            case Settle():
                return self._refusal_of_settle(operation)
            case Kick() | Bury() | Delete() | UpdateTasks() | Move():
                return self._refusal_of_chosen(operation)
            case _:
                assert_never(operation)

    def _refusal_of_put(self, command: Put) -> Refusal | None:
        tube = self._state.tubes.find(command.tube)
        if isinstance(tube, Refusal):
            return tube
        refusal = refusal_to_put(tube)
        if refusal is not None:
            return refusal
        refusals: list[Refusal] = []
        for item, task in enumerate(command.tasks):
            refusal = (
                refusal_of_new_task(self._state, tube, task)
                or self._refusal_of_dependencies(task.dependencies)
                or self._refusal_of_key(tube, task, command.owner)
            )
            if refusal is not None:
                refusals.append(at_item(item, refusal, f"tasks[{item}]."))
            self._items += 1
        return first_of(refusals) if refusals else None

    def _refusal_of_dependencies(self, dependencies: Dependencies | None) -> Refusal | None:
        """Return why a new task cannot depend on a referenced task, or None."""
        for place, reference in enumerate(dependencies.on if dependencies is not None else ()):
            if isinstance(reference, ItemReference):
                if not 0 <= reference.item < self._items:
                    return no_item(place, reference)
                continue
            refusal = refusal_of_reference(self._state, place, reference)
            if refusal is not None:
                return refusal
            task = self._state.find(self._state.tubes[reference.tube], reference.id)
            assert task is not None
            refusal = self._tasks.depend_on(task)
            if refusal is not None:
                return refusal
        return None

    def _refusal_of_key(self, tube: QueueTube, task: NewTask, owner: Ownership) -> Refusal | None:
        """Return why a new task cannot have its unique key, or None."""
        there = self._keys.put(tube, task)
        if isinstance(there, Refusal):
            return there
        if there is None:
            self.room.add(tube, 1, task.payload_bytes)
            return None
        if task.on_conflict is OnConflict.REPLACE_IF_WAITING:
            self.room.add(tube, 0, task.payload_bytes - there.payload_bytes)
        return refusal_of_owner(owner, there, task) or self._tasks.name(there)

    def _refusal_of_settle(self, command: Settle) -> Refusal | None:
        refusals: list[Refusal] = []
        for item, (path, settlement, token) in enumerate(leases_of(command)):
            task = self._state.leases.get(token)
            refusal = stale(token) if task is None else self._refusal_of_lease(task, settlement)
            if refusal is not None:
                refusals.append(at_item(item, refusal, path))
        return first_of(refusals) if refusals else None

    def _refusal_of_lease(self, task: QueueTask, settlement: Settlement) -> Refusal | None:
        """Return why the settlement of a lease is invalid, or None."""
        refusal = self._tasks.name(task) or refusal_of_settlement(self._state, task, settlement)
        if refusal is None:
            if isinstance(settlement, Ack):
                self._keys.free(task, is_kept=not leaves_on_ack(task.tube, settlement))
            add_settlement(self._state, self.room, task, settlement)
        return refusal

    def _refusal_of_chosen(self, command: ChosenOperation) -> Refusal | None:
        tube = self._state.tubes.find(command.tube)
        if isinstance(tube, Refusal):
            return tube
        selector = command.selector
        if selector is None or isinstance(selector, ByFilter):
            text = "an operation of a batch must select its tasks by id or key"
            return Refusal(Reason.INVALID_FIELD, text, {"field": "selector"})
        refusal = self._refusal_of_all(command, tube) or self._keys.refusal_to_name(tube, selector)
        if refusal is not None:
            return refusal
        for item, task in enumerate(named(self._state, tube, selector)):
            refusal = (
                task if isinstance(task, Refusal) else self._refusal_of_one(command, tube, task)
            )
            if refusal is not None:
                return at_item(item, refusal)
        return None

    def _refusal_of_all(self, command: ChosenOperation, tube: QueueTube) -> Refusal | None:
        """Return why an operation cannot be applied to any task, or None."""
        match command:
            case Kick(delay_ms=delay_ms, update=update):
                return refusal_of_change(tube, delay_ms, update)
            case UpdateTasks(update=update):
                return refusal_of_attributes(tube, update)
            case Move():
                return refusal_of_move(self._state, tube, command)
            case Bury() | Delete():
                return None
            case _:
                assert_never(command)

    def _refusal_of_one(
        self, command: ChosenOperation, tube: QueueTube, task: QueueTask
    ) -> Refusal | None:
        """Return why an operation cannot be applied to one task, or None."""
        refusal = self._tasks.name(task)
        if refusal is not None:
            return refusal
        match command:
            case Kick():
                if task.state is not BURIED:
                    return wrong_state(task)
                self.room.add(tube, 0, growth(self._state, task, command.update))
                return refusal_of_content(self._state, task, command.update)
            case Bury():
                return None if task.state in (READY, DELAYED, BURIED) else wrong_state(task)
            case Delete():
                self._keys.free(task, is_kept=False)
                self.room.add(tube, -1, -task.payload_bytes)
                return None
            case UpdateTasks():
                self.room.add(tube, 0, growth(self._state, task, command.update))
                return refusal_of_update(self._state, task, command.update)
            case Move():
                return self._refusal_of_moved(command, task)
            case _:
                assert_never(command)

    def _refusal_of_moved(self, command: Move, task: QueueTask) -> Refusal | None:
        """Return why a task and its unique key cannot be moved, or None."""
        target = target_of(self._state, task, command)
        if target is None or isinstance(target, Refusal):
            return target
        refusal = refusal_to_move(self._state, task, target, command)
        if refusal is not None:
            return refusal
        self._keys.free(task, is_kept=False)
        self.room.add(task.tube, -1, -task.payload_bytes)
        payload_bytes = task.payload_bytes + growth(self._state, task, command.update)
        self.room.add(target, 1, payload_bytes)
        key = key_there(task, target)
        return self._keys.move(target, key) if key else None
