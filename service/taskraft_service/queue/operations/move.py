"""Move selected tasks to another tube, or return dead letters to their original tubes.

A move has the effect of a release with ``move_to`` (``transitions/moving.py``), and the unique key
moves with the task. A refusal concerns one task only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from taskraft_service.queue.entities.instants import after, lengthened, postponed
from taskraft_service.queue.entities.refusal import Refusal, invalid
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task_state import BURIED, DELAYED, READY
from taskraft_service.queue.entities.tube import QueueTask, QueueTube, wrong_state
from taskraft_service.queue.operations.batch_draft import BatchDraft
from taskraft_service.queue.operations.command_definition import (
    COUNT_ANSWER,
    CommandDefinition,
    ReadyPrediction,
    Violation,
    side_of_tube,
    tubes_of_end,
)
from taskraft_service.queue.operations.selection import (
    CONTENT_ITEMS,
    Selector,
    at_most,
    selected_items,
)
from taskraft_service.queue.operations.task_change import TaskChange, change_selected
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import ACROSS, Side, SideLookup, refusal_of_target
from taskraft_service.queue.transitions.moving import move_to, refusal_of_all, refusal_to_receive
from taskraft_service.queue.transitions.transition import leave_order
from taskraft_service.queue.transitions.updating import (
    TaskUpdate,
    growth,
    refusal_of_change,
    refusal_of_content,
    set_delay,
    update_task,
)
from taskraft_service.queue.values import value


@value
class Move:
    """Move ready, delayed and buried tasks to another tube.

    Answer: ``CountResult``.

    Args:
        tube: current tube of the tasks.
        selector: the tasks.
        move_to: target tube; empty: dead letters return to their original tubes, others stay.
        delay_ms: new delay; None: a delayed task keeps its delay, other tasks become ready.
        position: position of the tasks that become ready.
        renew_times: restart TTL and TTR with the defaults of the target tube. Always true for
            returning dead letters.
        update: changes that are applied with the move and checked against the target tube.
    """

    tube: str
    selector: Selector
    move_to: str = ""
    delay_ms: int | None = None
    position: Position = Position.IN_ORDER
    renew_times: bool = False
    request_id: str = ""
    request_hash: int = 0
    update: TaskUpdate | None = None


MOVABLE: Final = (READY, DELAYED, BURIED)
"""States of tasks that can be moved. HELD tasks are not in an order yet."""


def _target_of(state: QueueState, task: QueueTask, command: Move) -> QueueTube | Refusal | None:
    """Return the target tube of a task, a refusal, or None if the task stays."""
    if task.state not in MOVABLE:
        return wrong_state(task)
    name = command.move_to or _origin_of(task)
    return state.tubes.find(name) if name else None


def _origin_of(task: QueueTask) -> str:
    """Return the tube from which a dead letter came; empty for other tasks."""
    origin = task.extras.origin
    return "" if origin is None else origin.tube


def _key_there(task: QueueTask, target: QueueTube) -> tuple[str, ...]:
    """Return the unique key that a task has after a move to ``target``.

    A dead letter that returns to its tube of origin gets its former key back; other tasks keep
    their key.
    """
    origin = task.extras.origin
    if origin is not None and origin.tube == target.name:
        return origin.unique_key
    return task.extras.unique_key


def _refusal_of_target(state: QueueState, tube: QueueTube, command: Move) -> Refusal | None:
    """Return why no task can be moved to the named tube, or None."""
    if not command.move_to:
        return None
    target = state.tubes.find(command.move_to)
    if isinstance(target, Refusal):
        return target
    if target is tube:
        return invalid("move_to", "names the tube where the tasks are", {"tube": tube.name})
    return (
        refusal_of_target(state, target.name, "move_to")
        or refusal_of_all(target)
        or refusal_of_change(target, command.delay_ms or 0, command.update)
    )


def _refusal_to_move(state: QueueState, task: QueueTask, command: Move) -> Refusal | None:
    """Return why one task cannot be moved; its key and the capacity are not checked."""
    target = _target_of(state, task, command)
    if target is None or isinstance(target, Refusal):
        return target
    return (
        refusal_to_receive(state, target, task)
        or refusal_of_change(target, command.delay_ms or 0, command.update)
        or refusal_of_content(state, task, command.update, is_moved=True)
    )


def _claim_place(draft: BatchDraft, task: QueueTask, command: Move) -> Refusal | None:
    """Free the place of a task, and claim its place in the target tube."""
    target = _target_of(draft.state, task, command)
    if not isinstance(target, QueueTube):
        return None
    draft.keys.free(task, is_kept=False)
    draft.room.add(task.tube, -1, -task.payload_bytes)
    if target.has_capacity:
        more_bytes = growth(draft.state, task, command.update)
        draft.room.add(target, 1, task.payload_bytes + more_bytes)
    key = _key_there(task, target)
    return draft.keys.move(target, key) if key else None


def _move(state: QueueState, task: QueueTask, command: Move) -> bool:
    """Move a task, whose times are set on arrival; return False if the task stays.

    When dead letters are returned, other tasks stay.
    """
    target = _target_of(state, task, command)
    if not isinstance(target, QueueTube):
        return False
    leave_order(task)
    now_ms, update = state.now_ms, command.update
    key = _key_there(task, target)
    delay_ms = command.delay_ms
    if delay_ms is None:
        delay_ms = max(task.visible_at_ms - now_ms, 0) if task.state is DELAYED else 0
    is_renewed = command.renew_times or not command.move_to
    if is_renewed:
        options = target.options
        task.ttl_ms, task.ttr_ms = options.ttl_ms, options.ttr_ms
        task.expire_at_ms = after(now_ms, task.ttl_ms)
    if update is not None:
        update_task(state, task, update)
    if is_renewed or (update is not None and update.ttl_ms is not None):
        task.ttl_ms = lengthened(
            task.ttl_ms, delay_ms
        )  # the new time to live starts after the delay
        task.expire_at_ms = postponed(task.expire_at_ms, delay_ms)
    elif command.delay_ms is not None:
        set_delay(state, task, delay_ms)
    if not command.move_to:
        # The leader's prediction cannot know the tube of origin of a dead letter.
        state.signals.signal_ready(target)
    move_to(state, task, target, delay_ms, command.position, key)
    return True


MOVING: Final[TaskChange[Move]] = TaskChange(
    states=lambda _: MOVABLE,
    apply=_move,
    refusal=_refusal_to_move,
    refusal_of_all=_refusal_of_target,
    claim=_claim_place,
    is_bounded=True,
)


def _predict(prediction: ReadyPrediction, command: Move) -> None:
    """Add the source tube and the target tube.

    Without a target, dead letters return to the tubes of their origin. The prediction does not know
    these tubes; the move itself reports each tube that gets a ready task.
    """
    target = (command.move_to,) if command.move_to else ()
    tubes = (*tubes_of_end(prediction.state, command.tube), *target)
    prediction.add(tubes, at_most(command.selector))


def _side_violations(
    command: Move, _side: Side, side_lookup: SideLookup, path: str
) -> Iterator[Violation]:
    if command.move_to and side_lookup(command.tube) | side_lookup(command.move_to) is Side.BOTH:
        yield f"{path}move_to", ACROSS


def _growth_bytes(command: Move) -> int:
    update = command.update
    return len(update.content) * at_most(command.selector) if update is not None else 0


DEFINITION: Final = CommandDefinition(
    Move,
    partial(change_selected, MOVING),
    predict=_predict,
    side=side_of_tube,
    answer=COUNT_ANSWER,
    side_violations=_side_violations,
    growth_bytes=_growth_bytes,
    items=lambda command: selected_items(command) * CONTENT_ITEMS,
)
