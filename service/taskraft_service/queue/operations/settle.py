"""Settle leases: acknowledge, release, bury, reject or touch taken tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, assert_never

from taskraft_service.queue.entities.event_cause import failure_cause
from taskraft_service.queue.entities.instants import (
    FOREVER_MS,
    NEVER_MS,
    after,
    lengthened,
    postponed,
    shown,
)
from taskraft_service.queue.entities.life_cycle import EventKind, Operation
from taskraft_service.queue.entities.refusal import REFUSED_ITEMS, ItemRefusal, Refusal
from taskraft_service.queue.entities.retry_policy import Exhausted
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.tube import BODY_INLINE_BYTES_MAX, QueueTask
from taskraft_service.queue.entities.tube_options import TtlScope
from taskraft_service.queue.operations.acknowledge import acknowledge, acknowledge_each, stale
from taskraft_service.queue.operations.command_definition import (
    AnswerCodec,
    CommandDefinition,
    ReadyPrediction,
    Violation,
    and_dead_letters,
    limits_leases,
    table_answer,
    tubes_of_dependents,
)
from taskraft_service.queue.operations.releasing import (
    UNSAID,
    give_up,
    put_back,
    renew_ttl,
    take_position,
    try_again,
)
from taskraft_service.queue.operations.selection import CONTENT_ITEMS
from taskraft_service.queue.operations.settle_checks import (
    refusal_of_capacity,
    refusal_of_settle,
    refusal_of_settlement,
    tube_after,
)
from taskraft_service.queue.operations.settlements import (
    Ack,
    BuryTaken,
    GivenUpLease,
    Reject,
    Release,
    Settle,
    Settlement,
    SettleResult,
    Touch,
    TouchedLease,
    kept_bytes,
)
from taskraft_service.queue.operations.take import SESSIONLESS_TTR_MS
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import (
    ACROSS,
    Side,
    SideLookup,
    side_of_tokens,
    union_of_sides,
)
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Items, Number
from taskraft_service.queue.transitions.endings import bury, note_failure
from taskraft_service.queue.transitions.moving import move_to
from taskraft_service.queue.transitions.transition import transition
from taskraft_service.queue.transitions.updating import update_task

RELEASE: Final = EventKind.RELEASE
ALL_SETTLED: Final = SettleResult()


def settle(state: QueueState, command: Settle) -> SettleResult | Refusal:
    """Settle leases in order; with ``atomic`` all or none."""
    if command.atomic:
        refusal = refusal_of_settle(state, command)
        if refusal is not None:
            return refusal
    return settle_checked(state, command, is_checked=command.atomic)


def settle_checked(state: QueueState, command: Settle, *, is_checked: bool = True) -> SettleResult:
    """Settle leases in order; nothing is refused if ``refusal_of_settle`` returned None."""
    refused: list[ItemRefusal] = []
    touched: list[TouchedLease] = []
    given_up: list[GivenUpLease] = []
    item = 0
    for settlement in command.settlements:
        if isinstance(settlement, Ack):
            acknowledge(state, settlement, item, refused, is_checked=is_checked)
        else:
            refusals = (
                _settle_one(state, settlement, token, touched, given_up, is_checked=is_checked)
                for token in settlement.tokens
            )
            refused += [
                ItemRefusal(place, refusal)
                for place, refusal in enumerate(refusals, item)
                if refusal is not None
            ]
        item += len(settlement.tokens)
    if not refused and not touched and not given_up:
        return ALL_SETTLED
    return SettleResult(refused, touched, given_up)


def settle_each(state: QueueState, commands: Sequence[Settle]) -> Sequence[SettleResult]:
    """Execute several plain acknowledgements together; return [] if none was executed."""
    acks = [ack for command in commands for ack in command.settlements if isinstance(ack, Ack)]
    assert len(acks) == len(commands)
    return [
        SettleResult(stale_items) if stale_items else ALL_SETTLED
        for stale_items in acknowledge_each(state, acks)
    ]


def _settle_one(
    state: QueueState,
    settlement: Release | BuryTaken | Reject | Touch,
    token: int,
    touched: list[TouchedLease],
    given_up: list[GivenUpLease],
    *,
    is_checked: bool,
) -> Refusal | None:
    """Settle one lease; return a refusal, or None."""
    task = state.leases.get(token)
    if task is None:
        return stale(token)
    if not is_checked:
        refusal = refusal_of_settlement(state, task, settlement) or refusal_of_capacity(
            state, task, settlement
        )
        if refusal is not None:
            return refusal
    outcome = TaskOutcome.NONE
    match settlement:
        case Release():
            outcome = _release(state, settlement, task)
        case BuryTaken():
            _bury(state, settlement, task)
        case Reject():
            outcome = _reject(state, settlement, task)
        case Touch():
            _touch(state, settlement, task)
            cancelled = task.extras.cancel_requested
            touched.append(TouchedLease(token, shown(task.lease_until_ms), cancelled))
        case _:
            assert_never(settlement)
    if outcome is not TaskOutcome.NONE:
        given_up.append(GivenUpLease(token, outcome))
    return None


def _release(state: QueueState, settlement: Release, task: QueueTask) -> TaskOutcome:
    """Return a task to READY or DELAYED, in its tube or another one.

    The back-off and the maximum of attempts apply if the release has a failure and counts. Returns
    how the task ended, or NONE if the task is READY or DELAYED.
    """
    place = tube_after(state, task, settlement)
    if place.rules.ignores_unsupported and not place.has_options:
        settlement = replace(settlement, delay_ms=0, ttl_ms=None)
    failure = settlement.failure
    if failure is not None:
        note_failure(state, task, failure)
    if task.extras.cancel_requested:  # a cancelled task ends on release
        put_back(state, task, RELEASE, UNSAID, 0, failure_cause(failure))
        return TaskOutcome.DELETED
    if settlement.update is not None:
        update_task(state, task, settlement.update)
    if settlement.move_to:
        delay_ms = renew_ttl(state, task, settlement, settlement.delay_ms or 0)
        target = state.tubes[settlement.move_to]
        move_to(state, task, target, delay_ms, settlement.position)
    elif settlement.uncounted or failure is None:
        if not settlement.uncounted:
            take_position(task, settlement)
        delay_ms, cause = settlement.delay_ms or 0, failure_cause(failure)
        put_back(state, task, RELEASE, settlement, delay_ms, cause)
        task.attempt -= settlement.uncounted
    else:
        return try_again(state, task, RELEASE, settlement, failure)
    return TaskOutcome.NONE


def _bury(state: QueueState, settlement: BuryTaken, task: QueueTask) -> None:
    failure = settlement.failure
    if settlement.update is not None:
        update_task(state, task, settlement.update)
    bury(state, task, Operation.BURY_TAKEN, failure, failure_cause(failure))


def _reject(state: QueueState, settlement: Reject, task: QueueTask) -> TaskOutcome:
    failure = settlement.failure
    if failure is not None:
        note_failure(state, task, failure)
    to = Exhausted.DEAD_LETTER if task.tube.options.dead_letter_tube else Exhausted.BURY
    return give_up(state, task, EventKind.BURY, to, failure_cause(failure))


def _touch(state: QueueState, settlement: Touch, task: QueueTask) -> None:
    """Extend a lease: add an increment (also to TTR and TTL), or restart its time to run.

    The two forms are the ``touch`` of tarantool/queue and the ``touch`` of beanstalkd. A lease that
    lasts as long as its session is left unchanged. A touch never shortens a lease.
    """
    increment_ms, progress = settlement.increment_ms, settlement.progress
    if increment_ms <= 0 and not settlement.restart and progress is None:
        return
    if progress is not None:
        task.extras = replace(task.extras, progress=progress)
        if state.watcher is not None:
            state.watcher(task, TaskOutcome.NONE)
    if increment_ms > 0:
        task.ttl_ms = lengthened(task.ttl_ms, increment_ms)
        task.ttr_ms = lengthened(task.ttr_ms, increment_ms)
        task.expire_at_ms = postponed(task.expire_at_ms, increment_ms)
        task.lease_until_ms = postponed(task.lease_until_ms, increment_ms)
        if task.extras.lease_ms:
            lease_ms = lengthened(task.extras.lease_ms, increment_ms)
            task.extras = replace(task.extras, lease_ms=lease_ms)
    if settlement.restart and task.lease_until_ms < NEVER_MS:
        renewed_ms = after(state.now_ms, _run_ms(task))
        if task.tube.options.ttl_scope is TtlScope.UNTAKEN:
            renewed_ms = min(renewed_ms, task.expire_at_ms)
        task.lease_until_ms = max(task.lease_until_ms, renewed_ms)
    transition(state, task.tube, (task,), Operation.TOUCH)


def _run_ms(task: QueueTask) -> int:
    """Return the time to run with which a touch restarts a lease that has an end."""
    if task.ttr_ms < FOREVER_MS:
        return task.ttr_ms
    if task.extras.lease_ms:
        return task.extras.lease_ms
    return SESSIONLESS_TTR_MS if task.session is None else FOREVER_MS


def _predict(prediction: ReadyPrediction, command: Settle) -> None:
    settlements = [one for one in command.settlements if not isinstance(one, Touch)]
    tokens = sum([len(one.tokens) for one in settlements])
    prediction.add(_tubes_settled(prediction.state, settlements), tokens)


def _tubes_settled(state: QueueState, settlements: Sequence[Settlement]) -> Iterator[str]:
    """Yield the tubes in which the end of a lease may make a task ready."""
    leases = state.leases
    for settlement in settlements:
        is_given_back = isinstance(settlement, (Release, Reject))
        if isinstance(settlement, Release) and settlement.move_to:
            yield settlement.move_to
        for token in settlement.tokens:
            task = leases.get(token)
            if task is None:
                continue
            if task.extras.dependents:
                yield from tubes_of_dependents(state, task)
            if is_given_back:
                yield from and_dead_letters(task.tube)
            elif limits_leases(task.tube):
                yield task.tube.name


def _side(command: Settle, _side_lookup: SideLookup) -> Side:
    return union_of_sides(side_of_tokens(one.tokens) for one in command.settlements)


def _side_violations(
    command: Settle, side: Side, side_lookup: SideLookup, path: str
) -> Iterator[Violation]:
    """Yield an atomic settle of both sides, and releases that would move a task between sides."""
    if command.atomic and side is Side.BOTH:
        text = "names leases of temporary and of replicated tubes; send two requests, or not atomic"
        yield f"{path}settlements", text
    for place, one in enumerate(command.settlements):
        if not isinstance(one, Release) or not one.move_to:
            continue
        if side_lookup(one.move_to) | side_of_tokens(one.tokens) is Side.BOTH:
            yield f"{path}settlements[{place}].release.move_to", ACROSS


def _growth_bytes(command: Settle) -> int:
    return sum([kept_bytes(one) * len(one.tokens) for one in command.settlements])


def _items(command: Settle) -> int:
    """Return how many items of an entry stand for the leases of a command."""
    items = 0
    for settlement in command.settlements:
        each = 1
        if not isinstance(settlement, (Touch, Reject)):
            is_moved = isinstance(settlement, Release) and bool(settlement.move_to)
            is_changed = settlement.update is not None and bool(settlement.update.content)
            result = settlement.result if isinstance(settlement, Ack) else None
            if is_moved or is_changed or (result and len(result) > BODY_INLINE_BYTES_MAX):
                each = CONTENT_ITEMS
        items += len(settlement.tokens) * each
    return items


_TOUCHED: Final = FieldTable(
    TouchedLease,
    Number("token", "Q"),
    Number("lease_until_ms", "Q"),
    Number("cancel_requested", "?"),
)
_GIVEN_UP: Final = FieldTable(
    GivenUpLease, Number("token", "Q"), Number("outcome", "B", kind=TaskOutcome)
)
_PLAIN: Final = table_answer(4, SettleResult, Items("touched", _TOUCHED), REFUSED_ITEMS)
_WITH_GIVEN_UP: Final = table_answer(
    32, SettleResult, Items("touched", _TOUCHED), Items("given_up", _GIVEN_UP), REFUSED_ITEMS
)


def _write_answer(result: SettleResult) -> bytes:
    """Encode a result; few results have leases that were given up."""
    return (_WITH_GIVEN_UP if result.given_up else _PLAIN).write(result)


def _repeat_answer(state: QueueState, kept: bytes) -> SettleResult | Refusal:
    codec = _WITH_GIVEN_UP if kept[0] in _WITH_GIVEN_UP.kinds else _PLAIN
    return codec.repeat(state, kept)


ANSWER: Final = AnswerCodec((*_PLAIN.kinds, *_WITH_GIVEN_UP.kinds), _write_answer, _repeat_answer)
DEFINITION: Final = CommandDefinition(
    Settle,
    settle,
    predict=_predict,
    side=_side,
    answer=ANSWER,
    side_violations=_side_violations,
    growth_bytes=_growth_bytes,
    items=_items,
)
