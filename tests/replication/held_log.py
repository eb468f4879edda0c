"""A log in memory, which other members can read."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_replication.core.errors import Compacted
from taskraft_replication.core.types import Entry, LogIndex
from taskraft_replication.storage.log_parts import LogKnowledge, TermRun
from tests.replication.log_on_disk import entry


class HeldLog:
    """A ``ReadableLog`` with entries of 1 000 bytes in the given runs."""

    def __init__(self, runs: Sequence[TermRun] = ()) -> None:
        self._runs = tuple(runs)
        self.held = {
            LogIndex(index): entry(index, run.term, bytes(1000))
            for run in runs
            for index in range(run.first, run.last + 1)
        }

    def knowledge(self) -> LogKnowledge:
        return LogKnowledge(self._runs, LogIndex(4))

    def entries(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> list[Entry]:
        found = [self.held[LogIndex(index)] for index in range(lo, hi) if index in self.held]
        if not found:
            raise Compacted
        return found[: max(1, bytes_max // 1000)]
