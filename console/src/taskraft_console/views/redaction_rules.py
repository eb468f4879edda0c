"""Read the file with the rules of redaction."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from taskraft_console.views.redaction import TubeRedaction

RULES_MAX: Final = 100
"""Maximum number of rules of one file."""

_PATH: Final = re.compile(r"[^.\s]+(\.[^.\s]+)*")


class RedactionFileInvalid(ValueError):
    """The redaction file is unusable; the text names the reason in one line."""


def _path(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise ValueError(f"{text!r} is not a path such as customer.email, lines.*.sku or **.token")
    return text


class RedactionRule(BaseModel):
    """One rule: values of the tasks of some tubes that no page shows."""

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


class RedactionRules(BaseModel):
    """The rules of one console."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    redact: tuple[RedactionRule, ...] = Field(default=(), max_length=RULES_MAX)

    def of(self, tube: str) -> TubeRedaction | None:
        """Return the redaction of the tasks of a tube; None: no rule applies."""
        rules = tuple(rule for rule in self.redact if rule.applies_to(tube))
        return TubeRedaction(rules) if rules else None


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
