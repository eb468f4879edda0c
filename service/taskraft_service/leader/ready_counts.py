"""Interface of the queue, as the waiting consumers use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class ReadyCounts(Protocol):
    """The tubes of the queue, with the number of tasks that can be leased."""

    def ready_count(self, tube: str) -> int:
        """Return the number of tasks that a take from a tube could lease now; unknown tube: 0."""

    def is_logged(self, tube: str) -> bool:
        """Return whether takes from a tube go through the log."""

    def tube_names(self) -> Sequence[str]:
        """Return the names of all tubes in order."""
