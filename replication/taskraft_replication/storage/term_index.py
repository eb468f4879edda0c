"""Store the term of every entry of the log without the entries."""

from __future__ import annotations

from bisect import bisect_right

from taskraft_replication.core.types import LogIndex, Term


class TermIndex:
    """The terms of the entries from ``first - 1`` to ``last``, as runs of equal terms.

    A log of a million entries has as many runs as it saw elections.
    """

    def __init__(self, index: LogIndex, term: Term) -> None:
        self._starts = [index]
        self._terms = [term]
        self.last = index

    @property
    def before(self) -> LogIndex:
        """Smallest index with a known term: the one before the first entry."""
        return self._starts[0]

    def append(self, index: LogIndex, term: Term) -> None:
        """Add the next entry."""
        assert index == self.last + 1, "indexes are consecutive"
        assert term >= self._terms[-1], "terms never decrease along the log"
        if term != self._terms[-1]:
            self._starts.append(index)
            self._terms.append(term)
        self.last = index

    def term(self, index: LogIndex) -> Term:
        """Return the term at ``index``, which must be known."""
        assert self._starts[0] <= index <= self.last
        return self._terms[bisect_right(self._starts, index) - 1]

    def cut_after(self, index: LogIndex) -> None:
        """Forget the terms behind ``index``."""
        assert self._starts[0] <= index <= self.last
        keep = bisect_right(self._starts, index)
        del self._starts[keep:]
        del self._terms[keep:]
        self.last = index

    def drop_before(self, index: LogIndex) -> None:
        """Forget the terms below ``index``."""
        term = self.term(index)
        keep = bisect_right(self._starts, index)
        self._starts[:keep] = [index]
        self._terms[:keep] = [term]
