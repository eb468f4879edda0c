"""Foresee in which tubes an entry may make tasks ready, before it is applied.

The leader appends takes of waiting consumers to the entry that feeds them; this says in which tubes
to look for those. Too many cost a take in vain, too few one more round of consensus.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from service.queue.commands import (
    AttachSession,
    Batch,
    Bury,
    Cancel,
    CloseSession,
    Delete,
    Kick,
    Move,
    Put,
    Reject,
    Release,
    ReleaseAll,
    Restart,
    RunSchedule,
    Settle,
    Snatch,
    Switch,
    Touch,
    UpdateTasks,
    UpdateTube,
)
from service.queue.keys import SESSION_TIMER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from service.queue.commands import Command, Settlement
    from service.queue.ledger import Ledger
    from service.queue.tasks.task import Task
    from service.queue.tubes.tube import Tube

DEPENDENTS_MAX: Final = 16
"""So many of those that wait for a task are looked at to foresee where its end makes one ready."""


def could_be_ready(ledger: Ledger, commands: Iterable[Command], now_ms: int) -> set[str]:
    """Return the names of the tubes in which an entry of ``commands`` may make tasks ready.

    Too many rather than too few: the proposer appends takes for them to the same entry. Looks
    at the commands and at the deadlines that are due at ``now_ms``.
    """
    names: set[str] = set()
    for command in _single(commands):
        match command:
            case (
                Put(tube)
                | Kick(tube)
                | ReleaseAll(tube)
                | UpdateTube(tube)
                | Snatch(tube)
                | Restart(tube)
                | Switch(tube)
                | UpdateTasks(tube)
            ):
                names.add(tube)
            case Delete(tube) | Bury(tube) | Cancel(tube):
                # A taken task, or the first of its sub-queue, may make way for another.
                found = ledger.tubes.get(tube)
                if found is not None and _makes_way(found):
                    names.add(tube)
            case Move(tube, move_to=move_to):
                names.update(_tubes_moved(ledger, tube, move_to))
            case Settle(settlements):
                names.update(_tubes_settled(ledger, settlements))
            case RunSchedule(name):
                names.update(_tubes_scheduled(ledger, name))
            case CloseSession(session_id) | AttachSession(session_id, False):
                names.update(_tubes_held(ledger, session_id))
            case _:
                pass
    names.update(_tubes_due(ledger, now_ms))
    return names


def _tubes_moved(ledger: Ledger, tube: str, move_to: str) -> Iterator[str]:
    """Yield where a move may make tasks ready: what goes may have stood before others.

    Dead letters that go back wake their tubes themselves.
    """
    found = ledger.tubes.get(tube)
    if found is not None and _makes_way(found):
        yield tube
    if move_to:
        yield move_to


def _tubes_scheduled(ledger: Ledger, name: str) -> Iterator[str]:
    """Yield where a schedule puts its task, and where the one before may have to go for it."""
    schedule = ledger.schedules.get(name)
    if schedule is not None:
        yield schedule.options.tube
        before = ledger.tubes.by_number.get(schedule.last[0])
        if before is not None:
            yield before.name


def _tubes_due(ledger: Ledger, now_ms: int) -> Iterator[str]:
    """Yield the names of the tubes that due deadlines are about, as far as memory knows."""
    least = ledger.timers.least()
    if least is None or least[0] > now_ms:
        return
    due = ledger.timers.in_memory_until((now_ms + 1,))
    for _, kind, tube_number, number in islice(due, ledger.limits.deadlines_per_entry_max):
        if kind == SESSION_TIMER:
            yield from _tubes_held(ledger, ledger.sessions.by_number[number].id)
        elif tube_number in ledger.tubes.by_number:
            yield from _and_dead_letters(ledger.tubes.by_number[tube_number])


def _tubes_settled(ledger: Ledger, settlements: Sequence[Settlement]) -> Iterator[str]:
    """Yield the tubes of leases whose end may make a task ready: itself, or the next one."""
    leases = ledger.leases
    for settlement in settlements:
        if isinstance(settlement, Touch):
            continue
        is_given_back = isinstance(settlement, (Release, Reject))
        if isinstance(settlement, Release) and settlement.move_to:
            yield settlement.move_to
        for token in settlement.tokens:
            task = leases.get(token)
            if task is None:
                continue
            if task.extras.dependents:
                yield from _tubes_of_dependents(ledger, task)
            if is_given_back:
                yield from _and_dead_letters(task.tube)
            elif _makes_way(task.tube):
                yield task.tube.name


def _tubes_of_dependents(ledger: Ledger, task: Task) -> Iterator[str]:
    """Yield the tubes of those that wait for a task, as far as they are few."""
    dependents = ledger.dependents
    for number, _ in dependents.first_of(task.extras.dependents, DEPENDENTS_MAX):
        tube = ledger.tubes.by_number.get(number)
        if tube is not None:
            yield tube.name


def _tubes_held(ledger: Ledger, session_id: str) -> Iterator[str]:
    session = ledger.sessions.get(session_id)
    for task in session.held.values() if session is not None else ():
        yield from _and_dead_letters(task.tube)


def _makes_way(tube: Tube) -> bool:
    """Tell whether the end of a lease may let another task of the tube be taken."""
    return tube.ready.counts_leases or tube.options.concurrency > 0


def _and_dead_letters(tube: Tube) -> Iterator[str]:
    """Yield the names of the tubes where a task goes whose lease ends."""
    yield tube.name
    if tube.options.dead_letter_tube:
        yield tube.options.dead_letter_tube


def _single(commands: Iterable[Command]) -> Iterator[Command]:
    """Yield the commands, and in place of a batch its operations."""
    for command in commands:
        if isinstance(command, Batch):
            yield from command.operations
        else:
            yield command
