"""Say where in the order of ready tasks a task goes."""

from __future__ import annotations

from enum import IntEnum


class Position(IntEnum):
    """Where a task goes; numbers are those of taskraft.v1.TaskSpec.Position."""

    IN_ORDER = 0
    FRONT = 1
    BACK = 2
