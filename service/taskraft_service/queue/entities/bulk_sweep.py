"""Define a bulk sweep: a change of many tasks in bounded steps, with its progress."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Number, Numbers, Rows, Size, Text
from taskraft_service.queue.values import value

REASONS_MAX: Final = 8
"""Maximum number of reasons whose refusals a sweep counts one by one."""


class BulkAction(IntEnum):
    """What a bulk sweep does with each task; values as in the API."""

    KICK = 1
    RESTART = 2
    BURY = 3
    DELETE = 4
    MOVE = 5


class BulkState(IntEnum):
    """State of a bulk sweep; values as in the API."""

    WAITING = 1
    RUNNING = 2
    DONE = 3
    STOPPED = 4
    FAILED = 5


ENDED: Final = (BulkState.DONE, BulkState.STOPPED, BulkState.FAILED)


@value
class BulkRequest:
    """What a bulk sweep has to do.

    Args:
        tube: name of the tube.
        filter: text of the filter; empty: all tasks, unless there are ids.
        ids: the tasks; empty: the sweep has a filter.
        action: what to do with each task.
        move_to: target tube of MOVE.
        bury_reason: reason of BURY.
        rate_per_second: maximum number of changed and refused tasks per second.
        principal: the principal that started the sweep; empty without authentication.
    """

    tube: str
    filter: str
    ids: Sequence[int]
    action: BulkAction
    move_to: str
    bury_reason: str
    rate_per_second: int
    principal: str


class BulkSweep:
    """A bulk sweep with its progress.

    ``position`` is the id up to which tasks were examined, or the number of examined ids.
    ``position_max`` is the highest id at the start, or the number of ids. Times are wall times.
    """

    __slots__ = (
        "changed",
        "ended_ms",
        "number",
        "position",
        "position_max",
        "problem",
        "reasons",
        "refused",
        "request",
        "started_ms",
        "state",
        "steps",
        "tube_number",
    )

    def __init__(self, number: int, request: BulkRequest, tube_number: int, at_ms: int) -> None:
        """Make a sweep that has changed nothing yet."""
        self.number = number
        self.request = request
        self.tube_number = tube_number
        self.state = BulkState.WAITING
        self.changed = 0
        self.refused = 0
        self.reasons: dict[int, int] = {}
        self.position = 0
        self.position_max = 0
        self.steps = 0
        self.started_ms = at_ms
        self.ended_ms = 0
        self.problem = ""

    @property
    def is_ended(self) -> bool:
        """Whether the sweep changes no further task."""
        return self.state in ENDED

    def count_refusal(self, reason: int) -> None:
        """Count a refused task."""
        self.refused += 1
        if reason in self.reasons or len(self.reasons) < REASONS_MAX:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1


def _reasons(sweep: BulkSweep) -> Sequence[tuple[int, int]]:
    return sorted(sweep.reasons.items())


def _sweep(
    number: int,
    request: BulkRequest,
    tube_number: int,
    started_ms: int,
    reasons: Sequence[tuple[int, int]],
    **others: object,
) -> BulkSweep:
    sweep = BulkSweep(number, request, tube_number, started_ms)
    sweep.reasons = dict(reasons)
    for name, content in others.items():
        setattr(sweep, name, content)
    return sweep


BULK_SWEEP_RECORD: Final = FieldTable(
    _sweep,
    Number("number", "Q"),
    Number("tube_number", "I"),
    Number("state", "B", BulkState),
    Number("changed", "Q"),
    Number("refused", "Q"),
    Number("position", "Q"),
    Number("position_max", "Q"),
    Number("steps", "Q"),
    Number("started_ms", "Q"),
    Number("ended_ms", "Q"),
    Number("request.action", "B", BulkAction),
    Number("request.rate_per_second", "I"),
    Size("H", "reasons"),
    Size("H", "request.ids"),
    Text("problem"),
    Text("request.tube"),
    Text("request.filter"),
    Text("request.move_to"),
    Text("request.bury_reason"),
    Text("request.principal"),
    Rows("reasons", "BQ", of=_reasons),
    Numbers("request.ids", "Q"),
    parts={"request": BulkRequest},
)
