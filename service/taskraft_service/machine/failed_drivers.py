"""Hold back an entry at which a driver failed, until a majority of the voters confirms it.

A driver should fail on all members alike, because it is a pure function. Another version of its
code, or a lack of memory, can make it fail on one member only. If each member decided alone, the
replicas would differ. Therefore a member with a failed driver waits at the entry and compares its
outcome with those of the other members, see ``driver_agreement``. Members whose outcome differs
from that of the majority stop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from taskraft_replication.core.types import LogIndex
from taskraft_service.queue.operations.registry import Result
from taskraft_service.queue.state.quarantines import Quarantines

log: Final = structlog.get_logger(__name__)


@dataclass(slots=True)
class AppliedEntry:
    """The effect of one entry: one result per command.

    ``repeated``: revisions of earlier requests that commands of the entry repeat, by request id.
    """

    index: int
    now_ms: int
    wall_offset_ms: int
    results: Sequence[Result]
    repeated: Mapping[str, int]


class DriverDiffers(Exception):
    """The outcome of a driver differs between this node and a majority of the voters.

    The node must stop, because its state is wrong.
    """

    def __init__(self, index: int, *, failed_here: bool) -> None:
        difference = (
            "failed on this node, but not on a majority of the voters"
            if failed_here
            else "failed on a majority of the voters, but not in the same way on this node"
        )
        super().__init__(
            f"a tube driver {difference}, at entry {index}; install the same code of all drivers"
            " on every node; if this node stops again, remove it from the cluster and add it with"
            " an empty data directory"
        )


class FailedDrivers:
    """The entry at which this member waits because a driver failed, and its result.

    The queue has applied the entry and has put the tube into quarantine. Until ``decide`` confirms
    the failure, the result is kept back, nothing is written, and no further entry is applied.

    Args:
        quarantines: returns the failures in the applied state.
    """

    def __init__(self, quarantines: Callable[[], Quarantines]) -> None:
        self._quarantines = quarantines
        self.ask_members: Callable[[], None] = lambda: None
        """Called at each tick while this member waits."""
        self.reset()

    def reset(self) -> None:
        """Stop waiting, because another state replaces the current one."""
        self.held_index = 0
        """Entry at which this member waits; 0: it does not wait."""
        self._kept_back: AppliedEntry | None = None
        self.has_released = False
        """Whether ``fetch_released`` can return a result."""

    @property
    def last_failure_index(self) -> int:
        """Return the last entry with a confirmed failure of a driver; 0: none is known.

        Also 0 while this member waits at an entry, whose failure is not confirmed yet.
        """
        return 0 if self.held_index else self._quarantines().last_failure_index

    def outcome_at(self, index: int, applied_index: LogIndex) -> int | None:
        """Return a checksum of the drivers that failed at an entry; 0: none did; None: unknown."""
        if index > max(applied_index, self.held_index):
            return None
        return self._quarantines().outcome_at(index)

    def hold(self, index: int, applied: AppliedEntry | None) -> None:
        """Wait at an entry, and keep its result back unless it is None."""
        self.held_index, self._kept_back = index, applied
        causes = self._quarantines().fetch_causes()
        log.error("driver failed; waits for the other members", revision=index, tubes=dict(causes))

    def is_waiting(self) -> bool:
        """Return whether this member waits; a waiting member asks the other members again."""
        if self.held_index:
            self.ask_members()
        return bool(self.held_index)

    def decide(self, index: int, outcome: int, applied_index: LogIndex) -> None:
        """Process the outcome of the drivers at an entry on a majority of the voters.

        Raises:
            DriverDiffers: the outcome on this member differs.
        """
        own = self.outcome_at(index, applied_index)
        if own is None:
            return
        if own != outcome:
            raise DriverDiffers(index, failed_here=not outcome)
        if self.held_index == index:
            log.error("tubes quarantined", revision=index)
            self.held_index = 0
            self.has_released = self._kept_back is not None

    def fetch_released(self) -> AppliedEntry:
        """Return the result of the entry whose failure is confirmed.

        Requires ``has_released``.
        """
        applied = self._kept_back
        assert applied is not None
        self._kept_back, self.has_released = None, False
        return applied
