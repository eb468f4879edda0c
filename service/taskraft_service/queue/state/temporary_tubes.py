"""Decide whether a command concerns replicated tubes or temporary tubes in memory.

The log and the store have only the definition of a temporary tube. Its tasks are in a separate
queue in the memory of the leader, so no applied entry may put tasks into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Flag
from functools import reduce
from operator import or_
from typing import Final, TypeAlias

from taskraft_service.queue.entities.id_layout import TEMPORARY_TASKS
from taskraft_service.queue.entities.refusal import Reason, Refusal, invalid
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_options import Durability, TubeOptions
from taskraft_service.queue.state.queue_state import QueueState


class Side(Flag):
    """Location of the tasks that a command addresses."""

    LOG = 1
    MEMORY = 2
    BOTH = 3


NOWHERE: Final = Side(0)
ACROSS: Final = (
    "names a tube of the other kind; a task cannot move between a temporary and a replicated tube"
)
SideLookup: TypeAlias = Callable[[str], Side]
"""Returns the side of a tube by its name; ``NOWHERE`` if the tube does not exist."""


def side_of_tokens(tokens: Sequence[int]) -> Side:
    """Return the side of leases; a token of a temporary tube is at least ``TEMPORARY_TASKS``."""
    if not tokens:
        return NOWHERE
    memory = Side.MEMORY if max(tokens) >= TEMPORARY_TASKS else NOWHERE
    return memory | (Side.LOG if min(tokens) < TEMPORARY_TASKS else NOWHERE)


def union_of_sides(sides: Iterable[Side]) -> Side:
    """Return all given sides together; ``NOWHERE`` if there are none."""
    return reduce(or_, sides, NOWHERE)


def out_of_reach(tube: QueueTube) -> Refusal:
    """Return the refusal of an operation that cannot reach the tasks of a temporary tube."""
    return Refusal(
        Reason.KIND_UNSUITABLE,
        "the tube is temporary: groups, schedules, batches and moves do not reach its contents",
        {"tube": tube.name, "durability": Durability.TEMPORARY.name},
    )


def refusal_of_dead_letter_tube(
    state: QueueState, options: TubeOptions, path: str
) -> Refusal | None:
    """Return why the options at ``path`` cannot name their dead-letter tube, or None.

    Both tubes must have the same durability.
    """
    target = state.tubes.get(options.dead_letter_tube)
    if target is None or target.options.durability is options.durability:
        return None
    text = f"names a tube that is {target.options.durability.name}"
    return invalid(f"{path}.dead_letter_tube", text, {"tube": target.name})


def refusal_of_target(state: QueueState, name: str, field: str) -> Refusal | None:
    """Return why a field cannot name a tube that will receive tasks later, or None.

    The tube need not exist yet. If it is created as temporary, the later put is refused.
    """
    tube = state.tubes.get(name)
    if tube is None or not tube.is_temporary:
        return None
    text = "names a temporary tube, which only plain puts reach"
    return Refusal(
        Reason.INVALID_FIELD, f"{field} {text}", {"field": field, "tube": name}, ((field, text),)
    )
