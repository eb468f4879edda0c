"""Define what reports and tables count: each figure is one condition on an event.

A condition names states and outcomes, because several kinds of events lead to the same state: a
task is BURIED by its holder, by an operator, or when its attempts are used up. Every report and
table takes its conditions from FIGURES, and docs/pipeline.md lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True, frozen=True)
class Figure:
    """A number of events.

    Attributes:
        name: name of the figure, also in CSV, JSON and SQL.
        condition: SQL condition on the columns of an event; true or false, never null.
        meaning: the counted transitions, for people.
        queue: the equal count of ``taskraft stats -o json`` or another command, for people.
    """

    name: str
    condition: str
    meaning: str
    queue: str


RUN_END: Final = "(from_state <=> 'taken' AND NOT to_state <=> 'taken')"
"""Condition: an attempt ends. The task was TAKEN from ``since_ts`` to ``ts``."""
WAIT_END: Final = "(from_state <=> 'ready' AND to_state <=> 'taken')"
"""Condition: a wait ends. The task was READY from ``since_ts`` to ``ts``."""
CROSSING: Final = (
    "(target IS NOT NULL AND (from_state IS NULL OR to_state IS NULL)"
    " AND NOT outcome <=> 'dependency_failed')"
)
"""Condition: the task comes from another tube or goes there; then one state is null."""

FIGURES: Final = (
    Figure(
        "put",
        f"(from_state IS NULL AND NOT {CROSSING})",
        "new tasks",
        "`calls.put`",
    ),
    Figure(
        "moved_in",
        f"(from_state IS NULL AND {CROSSING})",
        "tasks that came from another tube, also dead letters",
        "transitions to a state with `crossing`",
    ),
    Figure(
        "taken",
        "(to_state <=> 'taken' AND NOT from_state <=> 'taken')",
        "transitions to TAKEN",
        "`calls.take`",
    ),
    Figure(
        "acknowledged",
        "(from_state <=> 'taken' AND outcome <=> 'processed')",
        "tasks that left TAKEN as processed",
        "`calls.ack`",
    ),
    Figure(
        "failed",
        "attempt_failed",
        "attempts that ended with a failure and count for the retry policy",
        "`calls.fail`, FAILED of `taskraft stats`",
    ),
    Figure(
        "failures",
        "(fingerprint IS NOT NULL AND coalesce(from_state, '') IN ('ready', 'delayed', 'taken'))",
        "failed attempts, other lost leases, and burials with a failure",
        "the sum of `taskraft failures`",
    ),
    Figure(
        "buried",
        "(to_state <=> 'buried' AND NOT from_state <=> 'buried')",
        "transitions to BURIED, also of tasks whose attempts are used up",
        "transitions to BURIED from another state",
    ),
    Figure(
        "expired",
        "(outcome <=> 'expired')",
        "tasks whose time to live ended",
        "`calls.ttl`",
    ),
    Figure(
        "ended",
        "(outcome IS NOT NULL AND outcome <> 'buried_out' AND kind <> 'truncate')",
        "tasks that ended: acknowledged, given up, expired or deleted, but not truncated",
        "`calls.finished`",
    ),
    Figure(
        "moved_out",
        f"(to_state IS NULL AND {CROSSING})",
        "tasks that went to another tube, also dead letters",
        "transitions from a state with `crossing`",
    ),
)
"""All figures, in the order of a report."""
CONDITIONS: Final[Mapping[str, str]] = {figure.name: figure.condition for figure in FIGURES}
"""Condition of each figure by its name."""
EVENT_COLUMNS: Final = (
    "kind", "from_state", "to_state", "outcome", "fingerprint", "target", "attempt_failed",
)  # fmt: skip
"""Columns of an event that the conditions use."""
