"""Describe which entries of a log a member can read, and find where two logs are equal.

Raft's log matching property (Raft, 5.3): if two logs have an entry of the same index and term, then
all entries before that entry are equal in both logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from taskraft_replication.core.types import Entry, LogIndex, Term, value


@value
class TermRun:
    """Consecutive readable entries of one term, from ``first`` to ``last``, both included."""

    first: LogIndex
    last: LogIndex
    term: Term


@value
class LogRange:
    """Consecutive entries from ``first`` to ``last``, both included."""

    first: LogIndex
    last: LogIndex

    def __str__(self) -> str:
        """Return the range for an operator."""
        if self.first == self.last:
            return f"entry {self.first}"
        return f"entries {self.first} to {self.last}"


@value
class LogKnowledge:
    """What a member knows of its log."""

    readable: tuple[TermRun, ...]
    """The readable entries, in order."""
    commit: LogIndex
    """Index up to which its entries are committed, at least."""
    known: tuple[TermRun, ...] = ()
    """Further entries whose terms are known, but not their content."""


class ReadableLog(Protocol):
    """The readable entries of a member's log; reads block for at most one piece."""

    def knowledge(self) -> LogKnowledge:
        """Return which entries can be read."""

    def entries(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> Sequence[Entry]:
        """Return entries from ``lo`` to below ``hi``: at least one, then as many as fit the limit.

        Raises:
            Compacted, EntryUnavailable: the log does not have the first entry.
            LogDamaged: the first entry is unreadable.
        """


def runs_of(entries: Iterable[tuple[LogIndex, Term]]) -> Iterator[TermRun]:
    """Yield the runs of entries that are given as index and term, in ascending order."""
    run: TermRun | None = None
    for index, term in entries:
        if run is not None and index == run.last + 1 and term == run.term:
            run = TermRun(run.first, index, term)
            continue
        if run is not None:
            yield run
        run = TermRun(index, index, term)
    if run is not None:
        yield run


def are_in(entries: Iterable[Entry], runs: Sequence[TermRun]) -> bool:
    """Return whether ``runs`` has all entries, with these terms."""
    return all(
        any(
            run.first <= found.first and found.last <= run.last and run.term == found.term
            for run in runs
        )
        for found in runs_of((entry.index, entry.term) for entry in entries)
    )


def equal_up_to(own: Sequence[TermRun], other: Sequence[TermRun]) -> LogIndex:
    """Return the last index up to which two logs are known to be equal; 0: unknown."""
    last = LogIndex(0)
    mine, theirs = iter(own), iter(other)
    left, right = next(mine, None), next(theirs, None)
    while left is not None and right is not None:
        end = min(left.last, right.last)
        if left.term == right.term and end >= max(left.first, right.first):
            last = end
        if left.last <= right.last:
            left = next(mine, None)
        else:
            right = next(theirs, None)
    return last


def plan_repair(
    own: LogKnowledge, gaps: Sequence[LogRange], others: Sequence[LogKnowledge | None]
) -> tuple[list[tuple[LogRange, int]], list[LogRange]]:
    """Return which part of the gaps each of the other logs can fill, and what none of them has.

    The committed entries of two logs are equal. Beyond them, the logs must have a common entry.

    Args:
        own: the damaged log.
        gaps: its unreadable entries, as ranges in order.
        others: the logs of the other members; None: unknown.

    Returns:
        Ranges in order, each with the position of the log that has it, and the missing ranges.
    """
    mine = sorted([*own.readable, *own.known], key=lambda run: run.first)
    parts: list[tuple[LogRange, int]] = []
    missing = list(gaps)
    for position, other in enumerate(others):
        if other is None:
            continue
        committed = min(own.commit, other.commit)
        equal = max(committed, equal_up_to(mine, other.readable))
        found = [
            part
            for gap in missing
            if gap.first <= equal
            for part in readable_in(LogRange(gap.first, min(gap.last, equal)), other.readable)
        ]
        parts += [(part, position) for part in found]
        missing = without(missing, found)
    return sorted(parts, key=lambda part: part[0].first), missing


def readable_in(gap: LogRange, runs: Sequence[TermRun]) -> list[LogRange]:
    """Return the entries of ``gap`` that are in ``runs``, as ranges in order."""
    found: list[LogRange] = []
    for run in runs:
        first, last = max(run.first, gap.first), min(run.last, gap.last)
        if first > last:
            continue
        if found and found[-1].last + 1 == first:
            found[-1] = LogRange(found[-1].first, last)
        else:
            found.append(LogRange(first, last))
    return found


def without(gaps: Sequence[LogRange], ranges: Sequence[LogRange]) -> list[LogRange]:
    """Return the entries of ``gaps`` that are not in ``ranges``; both are in order."""
    left = list(gaps)
    for taken in ranges:
        rest: list[LogRange] = []
        for gap in left:
            if taken.last < gap.first or taken.first > gap.last:
                rest.append(gap)
                continue
            if gap.first < taken.first:
                rest.append(LogRange(gap.first, LogIndex(taken.first - 1)))
            if gap.last > taken.last:
                rest.append(LogRange(LogIndex(taken.last + 1), gap.last))
        left = rest
    return left
