"""The position of a task in the order of ready tasks."""

from __future__ import annotations

from enum import IntEnum


class Position(IntEnum):
    """Position of a task; numbers are those of taskraft.v1.TaskSpec.Position."""

    IN_ORDER = 0
    FRONT = 1
    BACK = 2
