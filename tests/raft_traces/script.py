"""Split a trace file into directives, each with its input and its expected output."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SEPARATOR = "----"
SUBTEST = "subtest"
"""Begins or ends a part of a script; has no output and no separator."""
CONTINUED = "\\"
"""At the end of a line, continues the directive on the next line."""
_TRUTHS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_ARGUMENT = re.compile(r"(?P<key>[^\s=()]+)(?:=(?P<value>\([^)]*\)|[^\s()]*))?")


@dataclass(slots=True, frozen=True)
class Argument:
    """One word of a directive: ``key``, ``key=value`` or ``key=(value, value)``."""

    key: str
    values: tuple[str, ...] = ()


@dataclass(slots=True, frozen=True)
class Directive:
    """One command of a script with its expected output."""

    line: int
    """Line number in the file, from 1."""
    command: str
    arguments: tuple[Argument, ...]
    input: tuple[str, ...]
    expected: str
    head: str
    """All lines up to the separator, with comments, as written; used by ``rewrite``."""

    @property
    def words(self) -> list[str]:
        """Return the arguments that have no value, in order."""
        return [each.key for each in self.arguments if not each.values]

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values of ``key``; empty if the key is absent."""
        return tuple(v for each in self.arguments if each.key == key for v in each.values)

    def value(self, key: str, default: str) -> str:
        """Return the single value of ``key``."""
        values = self.values(key)
        assert len(values) <= 1, f"line {self.line}: {key} takes one value"
        return values[0] if values else default

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return the value of ``key`` as a boolean."""
        return _TRUTHS[self.value(key, str(default)).lower()]

    @property
    def options(self) -> frozenset[str]:
        """Return the keys of the arguments that have values."""
        return frozenset(each.key for each in self.arguments if each.values)

    def number(self, key: str, default: int) -> int:
        """Return a number."""
        return int(self.value(key, str(default)))


class ScriptError(Exception):
    """The file is not a valid script."""


def parse_script(path: Path) -> list[Directive]:
    """Return the directives of the file at ``path``.

    Raises:
        ScriptError: the file has no directive, or a directive without a separator.
    """
    directives = list(_directives(path.read_text().splitlines()))
    if not directives:
        raise ScriptError("no directives")
    return directives


def _directives(lines: Sequence[str]) -> Iterator[Directive]:
    position = 0
    while position < len(lines):
        start = position
        while position < len(lines) and (
            not lines[position].strip() or lines[position].startswith("#")
        ):
            position += 1
        if position == len(lines):
            return
        if lines[position].split()[0] == SUBTEST:
            position += 1
            continue
        at = position
        while position < len(lines) and lines[position] != SEPARATOR:
            position += 1
        if position == len(lines):
            raise ScriptError(f"line {at + 1}: no separator follows")
        body = _unwrapped(lines[at:position])
        expected, after = _expected(lines, position + 1)
        command, _, rest = body[0].partition(" ")
        yield Directive(
            line=at + 1,
            command=command,
            arguments=tuple(_arguments(rest)),
            input=tuple(body[1:]),
            expected="\n".join(expected),
            head="\n".join(lines[start:position]),
        )
        position = after


def _unwrapped(body: Sequence[str]) -> list[str]:
    """Join the lines of a wrapped directive; the lines after it are its input."""
    first, *rest = body
    while first.rstrip().endswith(CONTINUED) and rest:
        first = f"{first.rstrip()[:-1]} {rest.pop(0).strip()}"
    return [first, *rest]


def _expected(lines: Sequence[str], position: int) -> tuple[list[str], int]:
    """Return the output at ``position``, and the position of the next directive.

    The output ends with a blank line. If the separator is doubled, the output ends with the next
    doubled separator.
    """
    expected = []
    if position < len(lines) and lines[position] == SEPARATOR:
        position += 1
        while lines[position : position + 2] != [SEPARATOR, SEPARATOR]:
            if position >= len(lines):
                raise ScriptError(f"line {position}: a doubled separator is missing")
            expected.append(lines[position])
            position += 1
        return expected, position + 2
    while position < len(lines) and lines[position].strip():
        expected.append(lines[position])
        position += 1
    return expected, position


def _arguments(text: str) -> Iterator[Argument]:
    for found in _ARGUMENT.finditer(text):
        value = found["value"]
        if value is None:
            yield Argument(found["key"])
        elif value.startswith("("):
            inner = value[1:-1].strip()
            values = tuple(each.strip() for each in inner.split(",")) if inner else ()
            yield Argument(found["key"], values)
        else:
            yield Argument(found["key"], (value,))
