"""Match tube names with patterns in which ``*`` stands for any characters, or none."""

from __future__ import annotations

from taskraft_service.queue.entities.filter import consists_of


def is_pattern(source: str) -> bool:
    """Return whether a source names tubes by a pattern, not one tube by its name."""
    return "*" in source


class TubePattern:
    """A pattern of tube names.

    Callers choose patterns freely, so no regular expression is built from them: a backtracking
    engine needs exponential time for ``******Z``. ``matches`` searches for each part between two
    stars once, from left to right.
    """

    __slots__ = ("_pieces",)

    def __init__(self, pattern: str) -> None:
        first, *rest = pattern.split("*")
        # Adjacent stars match the same names as one star.
        self._pieces = (first, *(piece for piece in rest[:-1] if piece), *rest[-1:])

    def matches(self, name: str) -> bool:
        """Return whether the whole of ``name`` fits the pattern."""
        return consists_of(name, self._pieces)
