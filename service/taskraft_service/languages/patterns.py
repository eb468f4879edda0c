"""Match names of tubes, groups and schedules with sets of patterns.

In a pattern, ``*`` stands for any characters, or none. Callers choose patterns freely, so no
regular expression is built from them: a backtracking engine needs exponential time for
``******Z``. The patterns of one request are compiled together, so that a name is compared only with
the patterns that can match the name.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple

from taskraft_service.queue.entities.filter import consists_of

_NO_RANK: Final = 1 << 30
_KEPT_SETS: Final = 256
"""Number of compiled sets that are kept for later calls with the same patterns."""


def is_pattern(source: str) -> bool:
    """Return whether a source names tubes by a pattern, not one tube by its name."""
    return "*" in source


def pieces_of(pattern: str) -> tuple[str, ...]:
    """Return the texts between the stars of a pattern; adjacent stars count as one star."""
    first, *rest = pattern.split("*")
    if "**" not in pattern:
        return (first, *rest)
    return (first, *(piece for piece in rest[:-1] if piece), *rest[-1:])


class _Glob(NamedTuple):
    """A pattern with a star; ``rank`` is its place in the list of patterns."""

    rank: int
    pieces: tuple[str, ...]


class _AnchoredGlobs:
    """Patterns, filed by the text (anchor) with which each name that they match begins.

    Anchors that are beginnings of a name form a chain: each is a beginning of the next one. The
    sorted list has the last anchor of the chain before the place where the name would be, and each
    anchor has a link to the anchor before it in the chain.
    """

    def __init__(self, anchored: Iterable[tuple[str, _Glob]]) -> None:
        by_anchor: dict[str, list[_Glob]] = {}
        for anchor, glob in anchored:
            by_anchor.setdefault(anchor, []).append(glob)
        self._anchors: list[str] = []
        self._globs: list[list[_Glob]] = []
        self._before: list[int] = []
        """Place of the anchor before this one in the chain; -1: none."""
        self._steps: list[int] = []
        """Number of steps for a name at this anchor and all anchors before it in the chain."""
        chain: list[tuple[int, int]] = []
        """The current anchors, each with the lowest rank that all names at the anchor have."""
        for anchor in sorted(by_anchor):
            while chain and not anchor.startswith(self._anchors[chain[-1][0]]):
                chain.pop()
            before, rank = chain[-1] if chain else (-1, _NO_RANK)
            globs = [glob for glob in by_anchor[anchor] if glob.rank < rank]
            if globs:
                chain.append((len(self._anchors), min(rank, *map(_rank_if_open, globs))))
                self._append(anchor, globs, before)

    def _append(self, anchor: str, globs: list[_Glob], before: int) -> None:
        steps = 1 + sum(len(glob.pieces) for glob in globs)
        self._anchors.append(anchor)
        self._globs.append(globs)
        self._before.append(before)
        self._steps.append(steps + (self._steps[before] if before >= 0 else 0))

    def steps_max(self) -> int:
        """Return the largest number of steps that ``rank_of`` takes for one name."""
        return max(self._steps, default=0)

    def rank_of(self, anchored: str, name: str, below: int) -> int:
        """Return the lowest rank of the patterns that match a name; ``below`` if none is lower.

        ``anchored`` is the name, from the end that the anchors describe.
        """
        place = bisect_right(self._anchors, anchored) - 1
        while place >= 0:
            if anchored.startswith(self._anchors[place]):
                for glob in self._globs[place]:
                    if glob.rank < below and consists_of(name, glob.pieces):
                        below = glob.rank
                        break
            place = self._before[place]
        return below


def _rank_if_open(glob: _Glob) -> int:
    """Return the rank of a pattern with one star at its end; of another pattern: no rank."""
    return glob.rank if len(glob.pieces) == 2 and not glob.pieces[1] else _NO_RANK


class PatternSet:
    """Patterns and plain names, compiled together.

    A step is a comparison of a name with an anchor, or a search for one piece of a pattern. A name
    costs at most ``steps_max`` steps, however many patterns the set has: plain names, ``x*`` and
    ``*x`` are looked up, and another pattern is tried only on names that begin or end as the
    pattern does. Only patterns with a common beginning or end add up.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._ranks: dict[str, int] = {}
        globs: dict[tuple[str, ...], int] = {}
        for rank, pattern in enumerate(patterns):
            if is_pattern(pattern):
                globs.setdefault(pieces_of(pattern), rank)
            else:
                self._ranks.setdefault(pattern, rank)
        from_start = [pieces for pieces in globs if len(pieces[0]) >= len(pieces[-1])]
        from_end = [pieces for pieces in globs if len(pieces[0]) < len(pieces[-1])]
        self._by_start = _AnchoredGlobs(
            (pieces[0], _Glob(globs[pieces], pieces)) for pieces in from_start
        )
        self._by_end = _AnchoredGlobs(
            (pieces[-1][::-1], _Glob(globs[pieces], pieces)) for pieces in from_end
        )
        self._has_ends = bool(from_end)
        self._beginnings = _shortest(pieces[0] for pieces in globs)
        self.steps_max: Final = 1 + self._by_start.steps_max() + self._by_end.steps_max()
        """Largest number of steps for one name."""

        self._size = len(self._ranks) + len(globs)

    def __len__(self) -> int:
        return self._size

    def rank_of(self, name: str) -> int | None:
        """Return the place of the first pattern that matches a name; None: no pattern does."""
        rank = self._ranks.get(name, _NO_RANK)
        rank = self._by_start.rank_of(name, name, rank)
        if self._has_ends:
            rank = self._by_end.rank_of(name[::-1], name, rank)
        return None if rank == _NO_RANK else rank

    def matches(self, name: str) -> bool:
        """Return whether one of the patterns matches the whole of a name."""
        return self.rank_of(name) is not None

    def candidates(self, names: Sequence[str]) -> list[range]:
        """Return the places of the names that can match, in order, without looking at the others.

        Args:
            names: names in order.
        """
        spans = []
        for text in self._beginnings:
            start = bisect_left(names, text)
            end = bisect_right(names, text, start, key=itemgetter(slice(len(text))))
            spans.append(range(start, end))
        for name in self._ranks:
            start = bisect_left(names, name)
            if start < len(names) and names[start] == name:
                spans.append(range(start, start + 1))
        found: list[range] = []
        for span in sorted(spans, key=lambda span: span.start):
            # Two beginnings of ``_shortest`` share no name, so a span holds all of another or none.
            if span and not (found and span.start < found[-1].stop):
                found.append(span)
        return found


@lru_cache(maxsize=_KEPT_SETS)
def compiled(patterns: tuple[str, ...]) -> PatternSet:
    """Return the set of some patterns; consumers often send the same patterns with each call."""
    return PatternSet(patterns)


def _shortest(texts: Iterable[str]) -> list[str]:
    """Return the texts, in order, that begin with none of the others."""
    found: list[str] = []
    for text in sorted(set(texts)):
        if not (found and text.startswith(found[-1])):
            found.append(text)
    return found
