"""Where the tasks of a command are: in the replicated log or in the temporary tubes in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Flag
from functools import reduce
from operator import or_
from typing import Final, TypeAlias

TEMPORARY_TUBES: Final = 1 << 31
"""Smallest number of a temporary tube."""
TEMPORARY_TASKS: Final = 1 << 62
"""Smallest task id and smallest lease token in a temporary tube."""


class Side(Flag):
    """Where the tasks are that a command addresses."""

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
    """Return all given sides together; ``Side.LOG`` if there are none."""
    return reduce(or_, sides, NOWHERE) or Side.LOG
