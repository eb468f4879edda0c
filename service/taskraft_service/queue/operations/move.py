"""Move chosen tasks that nobody holds to another tube, and dead letters back to where they failed.

What comes of a task there is the same as when its holder moves it (``tasks/moving.py``). Besides,
its unique key goes along; whatever stands in the way of one task refuses that one alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from taskraft_service.queue.entities.count_result import CountResult
from taskraft_service.queue.entities.instants import after, lengthened, postponed
from taskraft_service.queue.entities.life_cycle import BURIED, DELAYED, FINISHED, READY
from taskraft_service.queue.entities.position import Position
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.refusals import invalid, key_taken, wrong_state
from taskraft_service.queue.entities.selector import Selector, at_most
from taskraft_service.queue.entities.side import ACROSS, Side, SideLookup
from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.entities.task_update import TaskUpdate
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.operations.admin import hide
from taskraft_service.queue.operations.answer_codec import COUNT_ANSWER
from taskraft_service.queue.operations.command_definition import (
    CommandDefinition,
    Violation,
    side_of_tube,
)
from taskraft_service.queue.operations.ready_prediction import ReadyPrediction, tubes_of_end
from taskraft_service.queue.operations.selection import change_each
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import refusal_of_target
from taskraft_service.queue.transitions.moving import move_to, refusal_of_all, refusal_to_receive
from taskraft_service.queue.transitions.transition import leave_order
from taskraft_service.queue.transitions.uniqueness import holder
from taskraft_service.queue.transitions.updating import (
    growth,
    unsuitable_content,
    unsuitable_transition,
    update_task,
)
from taskraft_service.queue.values import value


@value
class Move:
    """Move ready, delayed and buried tasks to another tube. Answer: ``CountResult``.

    Args:
        tube: where they are.
        selector: which.
        move_to: where they go; empty: dead letters go back to where they come from, others stay.
        delay_ms: None: a delayed task stays so until its time, the others become ready.
        position: of those that become ready.
        renew_times: they live and run as long as the other tube says, from now on. Dead letters
            that go back do so anyway.
        update: changes together with the move, judged by the other tube.
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
"""What nobody holds and has not ended. What its group holds is not in circulation yet."""


def move_tasks(
    ledger: QueueState, command: Move, *, is_owed: bool = False
) -> CountResult | Refusal:
    """Move tasks to a tube, or dead letters each to the tube that gave it up.

    On the way back, those that are no dead letters stay as they are and are not counted. What is
    owed (a batch has reckoned its room) is not held back by the capacity.
    """
    tube = ledger.tubes.find(command.tube)
    if isinstance(tube, Refusal):
        return tube
    refusal = refusal_of_move(ledger, tube, command)
    if refusal is not None:
        return refusal

    def change(task: QueueTask) -> bool | Refusal:
        target = target_of(ledger, task, command)
        if target is None or isinstance(target, Refusal):
            return target or False
        refusal = refusal_to_move(ledger, task, target, command) or refusal_of_key(
            ledger, target, key_there(task, target)
        )
        if refusal is None and not is_owed:
            payload_bytes = task.payload_bytes + growth(ledger, task, command.update)
            refusal = target.full(1, payload_bytes)
        if refusal is None:
            _move(ledger, task, target, command)
        return refusal or True

    return change_each(ledger, tube, command.selector, MOVABLE, change)


def target_of(ledger: QueueState, task: QueueTask, command: Move) -> QueueTube | Refusal | None:
    """Return the tube where a task goes, why it cannot go anywhere, or None: it stays."""
    if task.state not in MOVABLE:
        return wrong_state(task)
    name = command.move_to or _origin_of(task)
    return ledger.tubes.find(name) if name else None


def _origin_of(task: QueueTask) -> str:
    """Return the name of the tube that gave a task up; empty: none did."""
    origin = task.extras.origin
    return "" if origin is None else origin.tube


def key_there(task: QueueTask, target: QueueTube) -> tuple[str, ...]:
    """Return the unique key that a task has in another tube: its own, or that of before there."""
    origin = task.extras.origin
    if origin is not None and origin.tube == target.name:
        return origin.unique_key
    return task.extras.unique_key


def refusal_of_move(ledger: QueueState, tube: QueueTube, command: Move) -> Refusal | None:
    """Return why no task can be moved to the tube that is named, if one is; or None."""
    if not command.move_to:
        return None
    target = ledger.tubes.find(command.move_to)
    if isinstance(target, Refusal):
        return target
    if target is tube:
        return invalid("move_to", "names the tube where the tasks are", {"tube": tube.name})
    return (
        refusal_of_target(ledger, target.name, "move_to")
        or refusal_of_all(target)
        or unsuitable_transition(target, command.delay_ms or 0, command.update)
    )


def refusal_to_move(
    ledger: QueueState, task: QueueTask, target: QueueTube, command: Move
) -> Refusal | None:
    """Return why a task cannot go to a tube, its key and the tube's capacity aside, or None."""
    return (
        refusal_to_receive(ledger, target, task)
        or unsuitable_transition(target, command.delay_ms or 0, command.update)
        or unsuitable_content(ledger, task, command.update)
    )


def refusal_of_key(ledger: QueueState, target: QueueTube, key: tuple[str, ...]) -> Refusal | None:
    """Return why a task cannot have a unique key in a tube, or None."""
    other = holder(ledger, target, key) if key else None
    return None if other is None or other.state in FINISHED else key_taken(other.id)


def _move(ledger: QueueState, task: QueueTask, target: QueueTube, command: Move) -> None:
    """Move a task for which there is room; its times are right when it arrives."""
    leave_order(task)
    now_ms, update = ledger.now_ms, command.update
    key = key_there(task, target)
    delay_ms = command.delay_ms
    if delay_ms is None:
        delay_ms = max(task.visible_at_ms - now_ms, 0) if task.state is DELAYED else 0
    is_renewed = command.renew_times or not command.move_to
    if is_renewed:
        options = target.options
        task.ttl_ms, task.ttr_ms = options.ttl_ms, options.ttr_ms
        task.expire_at_ms = after(now_ms, task.ttl_ms)
    if update is not None:
        update_task(ledger, task, update)
    if is_renewed or (update is not None and update.ttl_ms is not None):
        task.ttl_ms = lengthened(task.ttl_ms, delay_ms)  # a new life counts behind the delay
        task.expire_at_ms = postponed(task.expire_at_ms, delay_ms)
    elif command.delay_ms is not None:
        hide(ledger, task, delay_ms)
    if not command.move_to:
        ledger.news.wake(target)  # the command does not tell where it goes
    move_to(ledger, task, target, delay_ms, command.position, key)


def _predict(prediction: ReadyPrediction, command: Move) -> None:
    """Add both tubes; dead letters that return to their tubes signal these themselves."""
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
    move_tasks,
    predict=_predict,
    side=side_of_tube,
    answer=COUNT_ANSWER,
    side_violations=_side_violations,
    growth_bytes=_growth_bytes,
)
