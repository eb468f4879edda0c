"""Divide the bits of lease tokens, and of the ids of temporary tasks.

======  =================================================================================
Bits    Content
======  =================================================================================
62      1: the lease or the task is in a temporary tube
50..61  number of the cell that assigned the number; a cluster has one cell today, cell 0
36..49  temporary tubes only: low bits of the term of the leadership
0..35   temporary tubes only: numbers of this leadership, in order
======  =================================================================================

The tokens of replicated tubes use bits 0 to 49 for one sequence: 35 years at a million takes per
second. The task ids of replicated tubes are small numbers of their tube and have no parts.
"""

from __future__ import annotations

from typing import Final

TEMPORARY_TASKS: Final = 1 << 62
"""Smallest task id and smallest lease token in a temporary tube."""
TEMPORARY_TUBES: Final = 1 << 31
"""Smallest number of a temporary tube."""
CELL_BIT: Final = 50
"""Lowest bit of the number of the cell."""
SEQUENCE_BITS: Final = 36
"""Bits for the numbers of one leadership; a week at 100 000 numbers per second."""
TERM_BITS: Final = CELL_BIT - SEQUENCE_BITS
"""Bits for the term; the numbers of a leadership can repeat after 16 384 terms."""
SEQUENCE_RESERVE: Final = 1 << 30
"""Minimum number of unused numbers at which the leader ends its leadership; enough for hours."""


def first_temporary(term: int) -> int:
    """Return the number before the first number of a leadership."""
    return TEMPORARY_TASKS | (term & (1 << TERM_BITS) - 1) << SEQUENCE_BITS


def is_nearly_used_up(number: int) -> bool:
    """Return whether few numbers are left after the last number of a leadership."""
    used = number & (1 << SEQUENCE_BITS) - 1
    return used >= (1 << SEQUENCE_BITS) - SEQUENCE_RESERVE
