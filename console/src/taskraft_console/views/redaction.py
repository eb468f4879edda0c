"""Redact values of payloads, results and headers by the rules of an operator.

Redaction changes what the console shows. It is no access control: whoever may read a tube can read
its payloads with another client.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskraft_console.views.redaction_rules import RedactionRule

ANY_DEPTH: Final = "**"


class Redacted:
    """Text in the place of a redacted value."""


REDACTED: Final = Redacted()


class TubeRedaction:
    """The redaction of the tasks of one tube.

    Args:
        rules: the rules for the tube.
    """

    def __init__(self, rules: tuple[RedactionRule, ...]) -> None:
        self._paths = tuple(tuple(path.split(".")) for rule in rules for path in rule.paths)
        self._headers = tuple(name.lower() for rule in rules for name in rule.headers)

    @property
    def hides_values(self) -> bool:
        """Whether rules redact values of payloads and results."""
        return bool(self._paths)

    def hides_header(self, name: str) -> bool:
        """Return whether a rule redacts the value of a header."""
        return any(fnmatchcase(name.lower(), pattern) for pattern in self._headers)

    def redacted(self, value: object) -> object:
        """Return a JSON value with ``REDACTED`` in the place of each redacted value.

        Raises:
            RecursionError: the value is nested too deeply.
        """
        return _redacted(value, self._paths)


def _redacted(value: object, paths: tuple[tuple[str, ...], ...]) -> object:
    if any(all(part == ANY_DEPTH for part in path) for path in paths):
        return REDACTED
    if isinstance(value, dict):
        return {key: _redacted(inner, _below(paths, str(key))) for key, inner in value.items()}
    if isinstance(value, list):
        return [_redacted(inner, _below(paths, str(place))) for place, inner in enumerate(value)]
    return value


def _below(paths: tuple[tuple[str, ...], ...], key: str) -> tuple[tuple[str, ...], ...]:
    """Return the rest of the paths for the value with a name or position."""
    return tuple(dict.fromkeys(rest for path in paths for rest in _rests(path, key)))


def _rests(path: tuple[str, ...], key: str) -> Iterator[tuple[str, ...]]:
    if path[0] == ANY_DEPTH:
        yield path  # this level is one of any number of levels
        yield from _rests(path[1:], key)
    elif path[0] in ("*", key):
        yield path[1:]
