"""Choose the tasks of a take: from one tube or from several, by urgency or by weights.

What is chosen is out of its order and counts as taken there; leasing it is the next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from service.queue.life_cycle import READY
from service.queue.orders.candidates import Candidates, expire, matches
from service.queue.orders.read_ahead import soon_needed
from service.queue.orders.shares import WeightedCandidates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from service.queue.commands import Take
    from service.queue.ledger import Ledger
    from service.queue.orders.ordered_index import Entry
    from service.queue.orders.ready_order import ReadyOrder
    from service.queue.tasks.task import Task
    from service.queue.tubes.tube import Tube

ANY_BYTES: Final = 1 << 62


def choose(
    ledger: Ledger,
    command: Take,
    tubes: Sequence[Tube],
    room: int,
    bytes_max: int,
    has_some: bool = False,  # noqa: FBT001, FBT002 - see throttling.Choice
) -> list[Task]:
    """Choose up to ``room`` tasks of together ``bytes_max``.

    The first may have more bytes, unless ``has_some`` says that it is not the first of its take.
    """
    if command.types or command.priority_bound is not None:
        return _filtered(ledger, command, tubes, room, bytes_max, has_some=has_some)
    if len(tubes) == 1:
        return _first_of_one(ledger, tubes[0], room, bytes_max, has_some=has_some)
    return _first(ledger, command, tubes, room, bytes_max, has_some=has_some)


def _first(
    ledger: Ledger,
    command: Take,
    tubes: Sequence[Tube],
    room: int,
    bytes_max: int,
    *,
    has_some: bool,
) -> list[Task]:
    """Choose the most urgent tasks of some tubes."""
    tasks: list[Task] = []
    candidates = _candidates(ledger, command, tubes)
    while len(tasks) < room and (found := candidates.withdraw()) is not None:
        task, entry = found
        bytes_max -= task.payload_bytes
        if bytes_max < 0 and (tasks or has_some):
            task.tube.ready.restore(entry)
            break
        task.tube.ready.claim(task)
        candidates.proceed(is_claimed=True)
        tasks.append(task)
    return tasks


def choose_living(ledger: Ledger, tube: Tube, room: int) -> list[Task]:
    """Choose up to ``room`` tasks of a tube, of any size, up to one whose time to live is over."""
    return _first_of_one(ledger, tube, room, ANY_BYTES, has_some=False, ends_expired=False)


def _first_of_one(
    ledger: Ledger,
    tube: Tube,
    room: int,
    bytes_max: int,
    *,
    has_some: bool,
    ends_expired: bool = True,
) -> list[Task]:
    """Choose the first tasks of one tube: the hot path of consumers.

    ``ends_expired`` False: stop at a task whose time to live is over.
    """
    now_ms = ledger.now_ms
    ready, resident = tube.ready, tube.tasks
    bars = ready.counts_leases
    tasks: list[Task] = []
    while len(tasks) < room and (entries := ready.pop_many(room - len(tasks))):
        for place, entry in enumerate(entries):
            task = resident.get(entry[-1]) or soon_needed(ledger, tube, entries[place:])
            assert task.state is READY
            if task.expire_at_ms <= now_ms:
                if not ends_expired:
                    _restore(ready, entries[place:])
                    return tasks
                # What it makes way for in its sub-queue may come before the others.
                _restore(ready, entries[place + 1 :])
                expire(ledger, task)
                break
            bytes_max -= task.payload_bytes
            if bytes_max < 0 and (tasks or has_some):
                _restore(ready, entries[place:])
                return tasks
            if bars:
                ready.claim(task)
            tasks.append(task)
    return tasks


def _restore(ready: ReadyOrder, entries: Sequence[Entry]) -> None:
    """Offer withdrawn entries again."""
    for entry in reversed(entries):
        ready.restore(entry)


def _filtered(
    ledger: Ledger,
    command: Take,
    tubes: Sequence[Tube],
    room: int,
    bytes_max: int,
    *,
    has_some: bool,
) -> list[Task]:
    """Choose the most urgent tasks that a filter lets through.

    The others are put aside meanwhile; at most ``filter_scan_max`` are looked at. In a sub-queue a
    task that the filter holds back holds back those behind it.
    """
    types, bound, bytes_left = command.types, command.priority_bound, bytes_max
    tasks: list[Task] = []
    aside: list[tuple[Task, Entry]] = []
    candidates = _candidates(ledger, command, tubes)
    while len(tasks) < room and len(aside) < ledger.limits.filter_scan_max:
        found = candidates.withdraw()
        if found is None:
            break
        task, _ = found
        is_claimed = False
        if not matches(task, types, bound):
            aside.append(found)
        elif task.payload_bytes > bytes_left and (tasks or has_some):
            aside.append(found)
            break
        else:
            bytes_left -= task.payload_bytes
            task.tube.ready.claim(task)
            tasks.append(task)
            is_claimed = True
        candidates.proceed(is_claimed=is_claimed)
    for task, entry in reversed(aside):
        task.tube.ready.restore(entry)
        ledger.touch_tube(task.tube)  # so that its order is flushed
    return tasks


def _candidates(ledger: Ledger, command: Take, tubes: Sequence[Tube]) -> Candidates:
    """Return what tubes offer: by urgency over all of them, or by the weights that they have."""
    if len(tubes) < 2 or not command.weights:
        return Candidates(ledger, tubes)
    weights: dict[str, int] = {}
    for name, weight in zip(command.tubes, command.weights, strict=True):
        weights.setdefault(name, weight)
    return WeightedCandidates(ledger, tubes, [weights[tube.name] or 1 for tube in tubes])
