"""Say that a text in one of the languages does not parse."""

from __future__ import annotations


class FilterMalformed(Exception):
    """A filter does not parse.

    Attributes:
        position: where, in characters from 0; the length of the text if something is missing.
        problem: what is wrong there, for people.
    """

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"at character {position}: {problem}")
        self.position = position
        self.problem = problem
