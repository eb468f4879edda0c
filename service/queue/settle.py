"""Settle leases: acknowledge, release, bury and touch taken tasks."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, assert_never

from service.queue.commands import (
    FOREVER_MS,
    Ack,
    BuryTaken,
    ItemRefusal,
    Position,
    Reason,
    Refusal,
    Release,
    Settle,
    Settlement,
    SettleResult,
    Touch,
    TouchedLease,
    TtlPolicy,
)
from service.queue.feed import TUBE_STRIDE
from service.queue.instants import NEVER_MS, after, lengthened, postponed, shown
from service.queue.ledger import BY_TUBE
from service.queue.life_cycle import BURIED, DELAYED, GONE, READY, TAKEN, EventKind

if TYPE_CHECKING:
    from service.queue.ledger import Ledger
    from service.queue.task import Task
    from service.queue.tube import Tube

ACK: Final = EventKind.ACK


def settle(ledger: Ledger, command: Settle) -> SettleResult | Refusal:
    """Settle leases in order; with ``atomic`` all or none."""
    if command.atomic:
        refusal = _first_refusal(ledger, command)
        if refusal is not None:
            return refusal
    refused: list[ItemRefusal] = []
    touched: list[TouchedLease] = []
    item = 0
    for settlement in command.settlements:
        if isinstance(settlement, Ack):
            _ack(ledger, settlement, item, refused)
        else:
            for place, token in enumerate(settlement.tokens, item):
                refusal = _settle_one(ledger, settlement, token, touched)
                if refusal is not None:
                    refused.append(ItemRefusal(place, refusal))
        item += len(settlement.tokens)
    return SettleResult(refused, touched)


def _settle_one(
    ledger: Ledger,
    settlement: Release | BuryTaken | Touch,
    token: int,
    touched: list[TouchedLease],
) -> Refusal | None:
    """Settle one lease; return why not, or None."""
    task = ledger.leases.get(token)
    if task is None:
        return _stale(token)
    refusal = _unsuitable(task.tube, settlement)
    if refusal is not None:
        return refusal
    match settlement:
        case Release():
            _release(ledger, settlement, task)
        case BuryTaken():
            _bury(ledger, settlement, task)
        case Touch():
            _touch(ledger, settlement, task)
            touched.append(TouchedLease(token, shown(task.lease_until_ms)))
        case _:
            assert_never(settlement)
    return None


def _stale(token: int) -> Refusal:
    return Refusal(
        Reason.LEASE_STALE, "the lease is not valid, or not any more", {"token": str(token)}
    )


def _first_refusal(ledger: Ledger, command: Settle) -> Refusal | None:
    """Return what an atomic request is refused for, or None.

    A lease that ends is gone for the rest.
    """
    ended: set[int] = set()
    item = 0
    for settlement in command.settlements:
        for place, token in enumerate(settlement.tokens, item):
            task = ledger.leases.get(token)
            refusal = (
                _stale(token)
                if task is None or token in ended
                else _unsuitable(task.tube, settlement)
            )
            if refusal is not None:
                metadata = {**refusal.metadata, "item": str(place)}
                return Refusal(refusal.reason, refusal.message, metadata)
            if not isinstance(settlement, Touch):
                ended.add(token)
        item += len(settlement.tokens)
    return None


def _unsuitable(tube: Tube, settlement: Settlement) -> Refusal | None:
    """Return why a settlement is not for this kind of tube, or None."""
    if tube.has_options or not isinstance(settlement, Release):
        return None
    wishes = {"delay_ms": settlement.delay_ms > 0, "ttl_ms": settlement.ttl_ms is not None}
    for field, wished in wishes.items():
        if wished:
            return Refusal(
                Reason.INVALID_FIELD,
                f"{field} means nothing in a tube of kind {tube.kind.name}",
                {"field": field, "kind": tube.kind.name},
            )
    return None


def _ack(ledger: Ledger, settlement: Ack, item: int, refused: list[ItemRefusal]) -> None:
    """Finish tasks."""
    pop = ledger.leases.pop
    tasks: list[Task] = []
    for place, token in enumerate(settlement.tokens, item):
        task = pop(token, None)
        if task is None:
            refused.append(ItemRefusal(place, _stale(token)))
        else:
            tasks.append(task)
    for tube, run in groupby(tasks, BY_TUBE):
        _finish(ledger, tube, list(run))


def _finish(ledger: Ledger, tube: Tube, run: list[Task]) -> None:
    """Do what ``Ledger.move`` does, at once for tasks of one tube: the hot path of consumers."""
    index, now_ms, place, name = ledger.index, ledger.now_ms, ledger.place, tube.name
    appends = ledger.feed.appends
    partitions = len(appends)
    salt = tube.number * TUBE_STRIDE
    tasks = tube.tasks
    payload_bytes = resident_bytes = 0
    for task in run:
        task_id = task.id
        size = task.payload_bytes
        payload_bytes += size
        session = task.session
        label = ""
        if session is not None:
            label = session.label
            del session.held[task.token]
            task.session = None
        appends[(salt + task_id) % partitions](
            (
                index,
                place,
                now_ms,
                name,
                task_id,
                ACK,
                TAKEN,
                GONE,
                task.attempt,
                task.priority,
                task.created_ms,
                task.since_ms,
                task.subqueue,
                label,
                "",
                task.type,
                size,
            )
        )
        place += 1
        if task.timer is not None:
            ledger.timers.discard(task.timer)
            task.timer = None
        task.state = GONE
        if task.body is not None:
            resident_bytes += len(task.body)
            task.body = None
        if task.written is None:
            del tasks[task_id]
        elif not task.dirty:
            task.dirty = True
            ledger.dirty_tasks.append(task)
    ledger.place = place
    ledger.resident_bytes -= resident_bytes
    ledger.touch_tube(tube)
    tube.counters.count(ACK, TAKEN, GONE, len(run), -payload_bytes)


def _release(ledger: Ledger, settlement: Release, task: Task) -> None:
    reason = ""
    if settlement.failure is not None:
        task.failure = settlement.failure
        reason = settlement.failure.type
    delay_ms = max(settlement.delay_ms, 0)
    _renew_ttl(ledger, task, settlement, delay_ms)
    if settlement.position is Position.FRONT and delay_ms == 0:
        task.order = (task.tube.front_lane(), *task.order[1:])
    elif settlement.position is Position.BACK:
        task.order = (task.tube.back_lane(), *task.order[1:])
    if delay_ms > 0:
        task.visible_at_ms = after(ledger.now_ms, delay_ms)
    ledger.move(task, EventKind.RELEASE, DELAYED if delay_ms > 0 else READY, reason)
    if settlement.uncounted:
        task.attempt -= 1


def _renew_ttl(ledger: Ledger, task: Task, settlement: Release, delay_ms: int) -> None:
    """Do to the time to live what a release asks for."""
    match settlement.ttl_policy:
        case TtlPolicy.ADD_DELAY:
            task.ttl_ms = lengthened(task.ttl_ms, delay_ms)
            task.expire_at_ms = postponed(task.expire_at_ms, delay_ms)
        case TtlPolicy.RESET:
            ttl_ms = task.tube.options.ttl_ms if settlement.ttl_ms is None else settlement.ttl_ms
            task.ttl_ms = lengthened(ttl_ms, delay_ms)
            task.expire_at_ms = after(ledger.now_ms, task.ttl_ms)
        case TtlPolicy.KEEP_DEADLINE:
            pass
        case _:
            assert_never(settlement.ttl_policy)


def _bury(ledger: Ledger, settlement: BuryTaken, task: Task) -> None:
    if settlement.failure is not None:
        task.failure = settlement.failure
    task.times_buried += 1
    reason = settlement.failure.type if settlement.failure is not None else ""
    ledger.move(task, EventKind.BURY, BURIED, reason)


def _touch(ledger: Ledger, settlement: Touch, task: Task) -> None:
    """Prolong a lease: add to it, to its time to run and to live, or start its time to run anew.

    The two forms are tarantool/queue's ``touch`` and beanstalkd's. A lease that lives as long as
    its session stays so. Never shortens a lease.
    """
    increment_ms = settlement.increment_ms
    if increment_ms <= 0 and not settlement.restart:
        return
    ledger.touch_task(task)
    ledger.touch_tube(task.tube)
    label = task.session.label if task.session is not None else ""
    ledger.emit(task, EventKind.TOUCH, TAKEN, TAKEN, label, "")
    task.tube.counters.count(EventKind.TOUCH, TAKEN, TAKEN, 1)
    if increment_ms > 0:
        task.ttl_ms = lengthened(task.ttl_ms, increment_ms)
        task.ttr_ms = lengthened(task.ttr_ms, increment_ms)
        task.expire_at_ms = postponed(task.expire_at_ms, increment_ms)
        task.lease_until_ms = postponed(task.lease_until_ms, increment_ms)
    if settlement.restart and task.lease_until_ms < NEVER_MS:
        run_ms = task.ttr_ms
        if run_ms >= FOREVER_MS and task.session is None:
            run_ms = task.lease_until_ms - task.since_ms
        renewed_ms = min(after(ledger.now_ms, run_ms), task.expire_at_ms)
        task.lease_until_ms = max(task.lease_until_ms, renewed_ms)
    ledger.set_timer(task)
