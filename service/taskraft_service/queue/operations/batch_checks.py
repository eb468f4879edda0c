"""Add puts and settlements to the draft of a batch, or find out why a batch cannot have them."""

from __future__ import annotations

from taskraft_service.queue.entities.new_task import (
    Dependencies,
    ItemReference,
    NewTask,
    OnConflict,
)
from taskraft_service.queue.entities.ownership import Ownership
from taskraft_service.queue.entities.refusal import Refusal, at_item, first_of
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.operations.acknowledge import leaves_on_ack, stale
from taskraft_service.queue.operations.batch_draft import BatchDraft
from taskraft_service.queue.operations.dependencies import no_item, refusal_of_reference
from taskraft_service.queue.operations.put import Put, refusal_of_new_task, refusal_to_put
from taskraft_service.queue.operations.put_plan import refusal_of_owner
from taskraft_service.queue.operations.settle_checks import (
    add_settlement,
    leases_of,
    refusal_of_settlement,
)
from taskraft_service.queue.operations.settlements import Ack, Settle, Settlement


def check_put(draft: BatchDraft, command: Put) -> Refusal | None:
    """Add a put to a draft; return the refusal of the first refused item, or None."""
    tube = draft.state.tubes.find(command.tube)
    if isinstance(tube, Refusal):
        return tube
    refusal = refusal_to_put(tube)
    if refusal is not None:
        return refusal
    refusals: list[Refusal] = []
    for item, task in enumerate(command.tasks):
        refusal = (
            refusal_of_new_task(draft.state, tube, task)
            or _refusal_of_dependencies(draft, task.dependencies)
            or _refusal_of_key(draft, tube, task, command.owner)
        )
        if refusal is not None:
            refusals.append(at_item(item, refusal, f"tasks[{item}]."))
        draft.items += 1
    return first_of(refusals) if refusals else None


def _refusal_of_dependencies(
    draft: BatchDraft, dependencies: Dependencies | None
) -> Refusal | None:
    """Return why a new task cannot depend on a referenced task, or None."""
    state = draft.state
    for place, reference in enumerate(dependencies.on if dependencies is not None else ()):
        if isinstance(reference, ItemReference):
            if not 0 <= reference.item < draft.items:
                return no_item(place, reference)
            continue
        refusal = refusal_of_reference(state, place, reference)
        if refusal is not None:
            return refusal
        task = state.find(state.tubes[reference.tube], reference.id)
        assert task is not None
        refusal = draft.tasks.depend_on(task)
        if refusal is not None:
            return refusal
    return None


def _refusal_of_key(
    draft: BatchDraft, tube: QueueTube, task: NewTask, owner: Ownership
) -> Refusal | None:
    """Claim the unique key and the capacity for a new task; return why it cannot have its key."""
    there = draft.keys.put(tube, task)
    if isinstance(there, Refusal):
        return there
    if there is None:
        draft.room.add(tube, 1, task.payload_bytes)
        return None
    if task.on_conflict is OnConflict.REPLACE_IF_WAITING:
        draft.room.add(tube, 0, task.payload_bytes - there.payload_bytes)
    return refusal_of_owner(owner, there, task) or draft.tasks.name(there)


def check_settle(draft: BatchDraft, command: Settle) -> Refusal | None:
    """Add settlements to a draft; return the refusal of the first refused lease, or None."""
    refusals: list[Refusal] = []
    for item, (path, settlement, token) in enumerate(leases_of(command)):
        task = draft.state.leases.get(token)
        refusal = stale(token) if task is None else _refusal_of_lease(draft, task, settlement)
        if refusal is not None:
            refusals.append(at_item(item, refusal, path))
    return first_of(refusals) if refusals else None


def _refusal_of_lease(draft: BatchDraft, task: QueueTask, settlement: Settlement) -> Refusal | None:
    """Return why the settlement of a lease is invalid, or None."""
    refusal = draft.tasks.name(task) or refusal_of_settlement(draft.state, task, settlement)
    if refusal is None:
        if isinstance(settlement, Ack):
            draft.keys.free(task, is_kept=not leaves_on_ack(task.tube, settlement))
        add_settlement(draft.state, draft.room, task, settlement)
    return refusal
