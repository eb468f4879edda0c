"""Redact values of payloads, results and headers by the rules of an operator.

Redaction changes what the console shows. It is no access control: whoever may read a tube can read
its payloads with another client.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

ANY_DEPTH: Final = "**"
RULES_MAX: Final = 100
"""Maximum number of rules of one file."""


class RedactionFileInvalid(ValueError):
    """The redaction file is unusable; the text names the reason in one line."""


class Redacted:
    """Text in the place of a redacted value."""


REDACTED: Final = Redacted()

_PATH: Final = re.compile(r"[^.\s]+(\.[^.\s]+)*")


def _path(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise ValueError(f"{text!r} is not a path such as customer.email, lines.*.sku or **.token")
    return text


class RedactionRule(BaseModel):
    """The redaction of the tasks of some tubes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tubes: tuple[str, ...] = Field(min_length=1)
    """Names of tubes, or patterns in which "*" matches any characters."""
    paths: tuple[Annotated[str, AfterValidator(_path)], ...] = ()
    """Places of JSON values, names with dots between them. "*" is any name or position, "**" any
    number of them.
    """
    headers: tuple[str, ...] = ()
    """Names of headers, or patterns; case does not matter."""

    def applies_to(self, tube: str) -> bool:
        """Return whether the rule is for a tube."""
        return any(fnmatchcase(tube, pattern) for pattern in self.tubes)


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


class RedactionRules(BaseModel):
    """The rules of one console."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    redact: tuple[RedactionRule, ...] = Field(default=(), max_length=RULES_MAX)

    def of(self, tube: str) -> TubeRedaction | None:
        """Return the redaction of the tasks of a tube; None: no rule applies."""
        rules = tuple(rule for rule in self.redact if rule.applies_to(tube))
        return TubeRedaction(rules) if rules else None


NO_REDACTION: Final = RedactionRules()


def read_redaction(path: Path) -> RedactionRules:
    """Return the rules of a redaction file.

    Raises:
        RedactionFileInvalid: the file cannot be read, or is invalid.
    """
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text())
        return RedactionRules.model_validate(content)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RedactionFileInvalid(f"{path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise RedactionFileInvalid(f"{path}: {place}: {first['msg']}") from error
