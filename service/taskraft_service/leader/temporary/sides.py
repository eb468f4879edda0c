"""Tell where a command belongs: into the log, or to the temporary tubes in memory.

Nothing goes over the border: what would bring a task from one side to the other, or make changes on
both together, is refused with the fields at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Flag
from functools import reduce
from operator import or_
from typing import Final, TypeAlias

from taskraft_service.machine.queue_locator import TEMPORARY_TASKS
from taskraft_service.queue.commands.batch import BATCH_BRANCHES, ExecuteBatch
from taskraft_service.queue.commands.circulation import Bury, Delete, Kick, Move
from taskraft_service.queue.commands.command import Command
from taskraft_service.queue.commands.intervention import (
    Cancel,
    Restart,
    Snatch,
    Switch,
    UpdateTasks,
)
from taskraft_service.queue.commands.put import Put
from taskraft_service.queue.commands.settle import Release, Settle
from taskraft_service.queue.commands.take import Take
from taskraft_service.queue.commands.tubes import ReleaseAll, TruncateTube
from taskraft_service.queue.entities.refusal import Reason, Refusal


class Side(Flag):
    """SideLookup the tasks are that a command is about."""

    LOG = 1
    MEMORY = 2
    BOTH = 3


NOWHERE: Final = Side(0)
ACROSS: Final = "is temporary and the tasks are not, or the other way round"
SideLookup: TypeAlias = Callable[[str], Side]
"""Tells where the contents of a tube are; ``NOWHERE``: there is no such tube."""


def side_of(command: Command, where: SideLookup) -> Side:
    """Return where a command belongs; what is about no task belongs into the log."""
    match command:
        case (
            Put(name)
            | Kick(name)
            | Bury(name)
            | Delete(name)
            | UpdateTasks(name)
            | Snatch(name)
            | Restart(name)
            | Switch(name)
            | Move(name)
            | Cancel(name)
            | TruncateTube(name)
            | ReleaseAll(name)
        ):
            return where(name) or Side.LOG
        case Take(tubes):
            return _together(where(tube) for tube in tubes)
        case Settle(settlements):
            return _together(_side_of_tokens(one.tokens) for one in settlements)
        case ExecuteBatch(operations):
            return _together(side_of(operation, where) for operation in operations)
        case _:
            return Side.LOG


def _side_of_tokens(tokens: Sequence[int]) -> Side:
    """Return where leases are; tokens are told apart by their size."""
    if not tokens:
        return NOWHERE
    here = Side.MEMORY if max(tokens) >= TEMPORARY_TASKS else NOWHERE
    return here | (Side.LOG if min(tokens) < TEMPORARY_TASKS else NOWHERE)


def _together(sides: Iterable[Side]) -> Side:
    return reduce(or_, sides, NOWHERE) or Side.LOG


def refusal_across(command: Command, side: Side, where: SideLookup) -> Refusal | None:
    """Return why a command cannot be done on its side, or on both, or None."""
    wrong = [*_across(command, side, where, "")]
    if not wrong:
        return None
    field, text = wrong[0]
    return Refusal(Reason.INVALID_FIELD, f"{field} {text}", {"field": field}, tuple(wrong))


def _across(
    command: Command, side: Side, where: SideLookup, path: str
) -> Iterator[tuple[str, str]]:
    """Yield the fields that go over the border, each with what is wrong with it."""
    match command:
        case Put(_, tasks) if side is Side.MEMORY:
            for place, task in enumerate(tasks):
                if task.group:
                    yield f"{path}tasks[{place}].group", "means nothing in a temporary tube"
                if task.dependencies is not None:
                    yield f"{path}tasks[{place}].depends_on", "means nothing in a temporary tube"
        case Move(name, move_to=move_to) if move_to and where(name) | where(move_to) is Side.BOTH:
            yield f"{path}move_to", ACROSS
        case Settle():
            yield from _across_settle(command, side, where, path)
        case ExecuteBatch():
            yield from _across_batch(command, side, where)
        case _:
            pass


def _across_settle(
    command: Settle, side: Side, where: SideLookup, path: str
) -> Iterator[tuple[str, str]]:
    if command.atomic and side is Side.BOTH:
        yield f"{path}settlements", "are about temporary tubes and others, so not all or none"
    for place, one in enumerate(command.settlements):
        if not isinstance(one, Release) or not one.move_to:
            continue
        if where(one.move_to) | _side_of_tokens(one.tokens) is Side.BOTH:
            field = f"{path}settlements[{place}].release.move_to"
            yield field, ACROSS


def _across_batch(
    command: ExecuteBatch, side: Side, where: SideLookup
) -> Iterator[tuple[str, str]]:
    for place, operation in enumerate(command.operations):
        there = side_of(operation, where)
        within = f"operations[{place}]"
        if side is Side.BOTH and Side.MEMORY in there:
            yield within, "is about a temporary tube, and other operations are not"
        else:
            yield from _across(
                operation, there, where, f"{within}.{BATCH_BRANCHES[type(operation)]}."
            )
