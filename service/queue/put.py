"""Put tasks into a tube."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from service.queue.commands import (
    Extras,
    GroupState,
    ItemRefusal,
    NewTask,
    Position,
    Put,
    PutResult,
    Reason,
    Refusal,
)
from service.queue.driver import Arrival
from service.queue.feed import TUBE_STRIDE
from service.queue.instants import NEVER_MS, after, lengthened
from service.queue.life_cycle import DELAYED, GONE, HELD, READY, EventKind
from service.queue.option_checks import retry_violations
from service.queue.profiles import suitable_task
from service.queue.task import Task, Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from service.queue.ledger import Ledger
    from service.queue.tube import Tube

PUT: Final = EventKind.PUT
IN_ORDER: Final = Position.IN_ORDER


def put(ledger: Ledger, command: Put, *, is_owed: bool = False) -> PutResult | Refusal:
    """Put tasks in order; with ``atomic`` all or none.

    What is owed (the end of a group) is held back neither by a pause nor by the capacity.
    """
    tube = ledger.tube(command.tube)
    if isinstance(tube, Refusal):
        return tube
    if tube.options.put_paused and not is_owed:
        return paused(tube)
    tasks = command.tasks
    if tube.rules.ignores_unsuitable:
        tasks = [suitable_task(tube.kind, task) for task in tasks]
    knows_subqueues = tube.has_subqueues
    wishes = {
        place: task
        for place, task in enumerate(tasks)
        if task.priority is not None
        or task.delay_ms is not None
        or task.ttl_ms is not None
        or task.ttr_ms is not None
        or task.visible_at_ms is not None
        or task.position is not IN_ORDER
        or (task.subqueue and not knows_subqueues)
        or task.retry is not None
        or task.group
        or tube.custom is not None
    }
    refused = [
        ItemRefusal(place, refusal)
        for place, task in wishes.items()
        if (refusal := _refusal(ledger, tube, task)) is not None
    ]
    if tube.has_capacity and not is_owed:
        before = len(refused)
        refused = _without_room(tube, tasks, refused)
        if command.waits_for_room and len(refused) > before:
            payload_bytes = sum(task.payload_bytes for task in tasks)
            return tube.full(len(tasks), payload_bytes) or refused[-1].refusal
    if not refused:
        return PutResult(_store(ledger, tube, tasks, has_wishes=bool(wishes)))
    if command.atomic:
        first = refused[0]
        metadata = {**first.refusal.metadata, "item": str(first.item)}
        return Refusal(first.refusal.reason, first.refusal.message, metadata)
    without = {item.item for item in refused}
    accepted = [task for place, task in enumerate(tasks) if place not in without]
    ids = iter(_store(ledger, tube, accepted, has_wishes=bool(wishes)))
    return PutResult([0 if place in without else next(ids) for place in range(len(tasks))], refused)


def paused(tube: Tube) -> Refusal:
    """Say that a tube takes no tasks."""
    return Refusal(Reason.TUBE_PAUSED, "the tube takes no tasks at present", {"tube": tube.name})


def task_refusal(ledger: Ledger, tube: Tube, task: NewTask) -> Refusal | None:
    """Return why a task cannot be put into a tube, its capacity aside, or None."""
    if tube.rules.ignores_unsuitable:
        task = suitable_task(tube.kind, task)
    return _refusal(ledger, tube, task)


def _without_room(
    tube: Tube, tasks: Sequence[NewTask], refused: Sequence[ItemRefusal]
) -> list[ItemRefusal]:
    """Return the refused items, and those for which the tube has no room: what fits comes in."""
    known = {item.item: item for item in refused}
    found: list[ItemRefusal] = []
    count = payload_bytes = 0
    for place, task in enumerate(tasks):
        if place in known:
            found.append(known[place])
        elif (full := tube.full(count + 1, payload_bytes + task.payload_bytes)) is not None:
            found.append(ItemRefusal(place, full))
        else:
            count += 1
            payload_bytes += task.payload_bytes
    return found


def terms_of(tube: Tube, task: NewTask, now_ms: int) -> Terms:
    """Return what applies to a task that is put now.

    A delay prolongs the time to live (tarantool/queue, ``put``). A task for the front or the back
    that is delayed is an ordinary one.
    """
    options = tube.options
    priority = options.priority if task.priority is None else task.priority
    delay_ms = options.delay_ms if task.delay_ms is None else task.delay_ms
    if task.visible_at_ms is not None:
        delay_ms = max(delay_ms, task.visible_at_ms - now_ms)
    ttl_ms = lengthened(options.ttl_ms if task.ttl_ms is None else task.ttl_ms, delay_ms)
    ttr_ms = options.ttr_ms if task.ttr_ms is None else task.ttr_ms
    lane = 0
    if delay_ms <= 0 and task.position is not Position.IN_ORDER:
        lane = tube.lane(task.position)
    return Terms(
        DELAYED if delay_ms > 0 else READY,
        lane,
        tube.rank(priority),
        priority,
        ttl_ms,
        max(ttr_ms, 0),
        after(now_ms, delay_ms) if delay_ms > 0 else NEVER_MS,
        after(now_ms, ttl_ms),
    )


def _refusal(ledger: Ledger, tube: Tube, task: NewTask) -> Refusal | None:
    """Return why a task is not for this kind of tube, or not for its group, or None."""
    wishes: dict[str, int | str | None] = {}
    if not tube.has_subqueues:
        wishes["subqueue"] = task.subqueue or None
    if not tube.has_options:
        wishes |= {
            "priority": task.priority,
            "delay_ms": task.delay_ms,
            "ttl_ms": task.ttl_ms,
            "ttr_ms": task.ttr_ms,
            "visible_at_ms": task.visible_at_ms,
        }
    for field, wish in wishes.items():
        if wish is not None:
            return Refusal(
                Reason.INVALID_FIELD,
                f"{field} means nothing in a tube of kind {tube.kind.name}",
                {"field": field, "kind": tube.kind.name},
            )
    if task.retry is not None:
        for field, text in retry_violations(task.retry, tube.options.dead_letter_tube):
            name = f"retry.{field}"
            return Refusal(Reason.INVALID_FIELD, f"{name} {text}", {"field": name})
    if task.priority is not None:
        refusal = tube.priority_refusal("priority", task.priority)
        if refusal is not None:
            return refusal
    return _refused_by_others(ledger, tube, task)


def _refused_by_others(ledger: Ledger, tube: Tube, task: NewTask) -> Refusal | None:
    """Return why the group of a task, or the driver of its tube, does not take it, or None."""
    refusal = ledger.groups.refusal_to_join(task.group) if task.group else None
    if refusal is None and tube.custom is not None:
        return _refused_by_driver(ledger, tube, task)
    return refusal


def _refused_by_driver(ledger: Ledger, tube: Tube, task: NewTask) -> Refusal | None:
    """Return why the driver of a tube does not take a task, or None."""
    assert tube.custom is not None
    priority = tube.options.priority if task.priority is None else task.priority
    arrival = Arrival(
        0, priority, task.type, task.payload_bytes, 0, ledger.now_ms, 0, ledger.now_ms
    )
    why = tube.custom.refuse(arrival)
    if not why:
        return None
    return Refusal(Reason.KIND_UNSUITABLE, why, {"tube": tube.name, "driver": tube.driver})


def _give_extras(ledger: Ledger, task: Task, new: NewTask) -> bool:
    """Give a new task its rare attributes; tell whether its group holds it."""
    task.extras = Extras(retry=new.retry, group=new.group)
    if not new.group:
        return False
    ledger.groups.came(task)
    group = ledger.groups.get(new.group)
    if group is None or group.state is not GroupState.HELD:
        return False
    task.state = HELD
    return True


def _store(
    ledger: Ledger, tube: Tube, new_tasks: Sequence[NewTask], *, has_wishes: bool
) -> Sequence[int]:
    """Make the tasks and return their ids. The hot path of producers: see bench/core_cycle.py."""
    now_ms, index, place, name = ledger.now_ms, ledger.index, ledger.place, tube.name
    appends = ledger.feed.appends
    partitions = len(appends)
    salt = tube.number * TUBE_STRIDE
    tasks = tube.tasks
    add_dirty = ledger.dirty_tasks.append
    ready: list[Task] = []
    custom = tube.custom
    add_ready = ready.append
    terms = terms_of(tube, NewTask(b"", 0), now_ms)
    delayed = held = payload_bytes = resident_bytes = 0
    first_id = task_id = tube.next_id
    for new in new_tasks:
        if has_wishes:
            terms = terms_of(tube, new, now_ms)
        body, size, task_type, subqueue = new.body, new.payload_bytes, new.type, new.subqueue
        task = Task(tube, task_id, terms, now_ms, body, size, task_type, subqueue)
        if has_wishes and (new.retry is not None or new.group):
            held += _give_extras(ledger, task, new)
        tasks[task_id] = task
        add_dirty(task)
        state = task.state
        if state is READY:
            if custom is not None:
                ledger.line_up(task)
            add_ready(task)
        else:
            delayed += 1
        if state is DELAYED or task.expire_at_ms < NEVER_MS:
            ledger.set_timer(task)
        payload_bytes += size
        resident_bytes += len(body)
        appends[(salt + task_id) % partitions](
            (
                index,
                place,
                now_ms,
                name,
                task_id,
                PUT,
                GONE,
                state,
                0,
                task.priority,
                now_ms,
                now_ms,
                subqueue,
                "",
                "",
                task_type,
                size,
            )
        )
        place += 1
        task_id += 1
    tube.ready.add_all(ready)
    tube.next_id = task_id
    ledger.place = place
    ledger.resident_bytes += resident_bytes
    ledger.touch_tube(tube)
    tube.counters.count(PUT, GONE, READY, task_id - first_id - delayed, payload_bytes)
    tube.counters.count(PUT, GONE, DELAYED, delayed - held)
    if held:
        tube.counters.count(PUT, GONE, HELD, held)
    return range(first_id, task_id)
