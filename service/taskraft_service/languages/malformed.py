"""Error of the filter parser."""

from __future__ import annotations


class FilterMalformed(Exception):
    """A filter does not parse.

    Attributes:
        position: offset of the error in characters, from 0; the length of the text if something is
            missing.
        problem: description of the error.
    """

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"at character {position}: {problem}")
        self.position = position
        self.problem = problem
