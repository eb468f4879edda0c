"""Provide a state machine for tests: the list of all applied entries, with a digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from taskraft_replication.core.types import Entry, LogIndex


class FrozenState:
    """A snapshot of a ``CountingMachine``."""

    def __init__(self, index: LogIndex, lines: list[bytes]) -> None:
        self.index = index
        self._content = b"".join(len(line).to_bytes(4, "big") + line for line in lines)

    def read(self, offset: int, size: int) -> bytes:
        return self._content[offset : offset + size]

    def close(self) -> None:
        self._content = b""


class CountingMachine:
    """Stores the data of all entries in order; durable up to the last ``flush_durably``."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.applied_index = LogIndex(0)
        self.durable_index = LogIndex(0)
        self.durable_lines: list[bytes] = []
        self.is_choked = False
        """Whether entries must wait for the disk."""
        self.held_index = 0
        """Entry at which the machine waits for other members; 0: it does not wait."""
        self.steps_left = 0
        """Number of steps of a write that must end before further entries are applied."""

    def write_some(self) -> None:
        self.steps_left -= 1

    @property
    def is_writing(self) -> bool:
        return self.steps_left > 0

    def waits_for_disk(self, entry: Entry) -> bool:
        return self.is_choked

    def waits_for_members(self) -> bool:
        return self.held_index == self.applied_index + 1

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        results: list[object] = []
        for entry in entries:
            assert entry.index == self.applied_index + 1
            if entry.index == self.held_index:
                break
            self.applied_index = entry.index
            if entry.data:
                self.lines.append(entry.data)
            results.append(len(self.lines))
        return results

    def write_applied(self) -> None:
        pass

    def flush_durably(self) -> LogIndex:
        index, lines = self.applied_index, list(self.lines)
        self.durable_index, self.durable_lines = index, lines
        return index

    def open_snapshot(self) -> FrozenState:
        return FrozenState(self.applied_index, list(self.lines))

    @property
    def snapshot_index(self) -> LogIndex:
        return self.applied_index

    def stage_snapshot(self, index: LogIndex, chunks: Iterable[bytes]) -> StagedLines:
        content = b"".join(chunks)
        lines = []
        offset = 0
        while offset < len(content):
            size = int.from_bytes(content[offset : offset + 4], "big")
            lines.append(content[offset + 4 : offset + 4 + size])
            offset += 4 + size
        return StagedLines(self, index, lines)

    def after_crash(self) -> CountingMachine:
        """Return the machine that a restart after a power loss finds."""
        found = CountingMachine()
        found.lines = list(self.durable_lines)
        found.durable_lines = list(self.durable_lines)
        found.applied_index = found.durable_index = self.durable_index
        return found

    def digest(self) -> bytes:
        return hashlib.sha256(b"\0".join(self.lines)).digest()


class StagedLines:
    """A snapshot that is staged beside the state of a ``CountingMachine``."""

    def __init__(self, machine: CountingMachine, index: LogIndex, lines: list[bytes]) -> None:
        self._machine = machine
        self._index = index
        self._lines = lines

    def switch(self) -> None:
        self._machine.durable_index, self._machine.durable_lines = self._index, list(self._lines)

    def adopt(self) -> None:
        self._machine.applied_index, self._machine.lines = self._index, list(self._lines)

    def discard(self) -> None:
        self._lines = []
