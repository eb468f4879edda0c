"""The changes that a file of declarations makes, printed as differences of YAML."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

_COLOURS: Final = {"-": "red", "+": "green"}
_PAYLOAD: Final = "spec.payload"


@dataclass(frozen=True, slots=True)
class DeclaredChange:
    """An object that is created, changed or deleted, or stays as it is."""

    kind: str
    """Either "tube", "schedule" or "principal"."""
    name: str
    action: str
    """Either "create", "update", "delete" or "unchanged"."""
    differences: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Values before and after, by the path of the field."""

    def value(self) -> dict[str, Any]:
        """Return the JSON form."""
        pairs = {path: {"before": a, "after": b} for path, (a, b) in self.differences.items()}
        return {"kind": self.kind, "name": self.name, "action": self.action, "differences": pairs}


def write_changes(changes: Iterable[DeclaredChange], output: str) -> None:
    """Print changes in the format `output`; for people, as differences of YAML."""
    from taskraft.cli.output import write_values
    from taskraft.cli.terminal_text import terminal_text

    changes = [*changes]
    if write_values([each.value() for each in changes], output):
        return
    for change in changes:
        click.echo(f"{change.kind} {terminal_text(change.name)}: {change.action}")
        for path, (before, after) in change.differences.items():
            for sign, value in (("-", before), ("+", after)):
                if value is not None:
                    _print_value(sign, path, value)


def _print_value(sign: str, path: str, value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Print a field as lines of YAML behind a sign, in colours on a terminal."""
    from taskraft.cli.output import show_payload, write_line, yaml_text

    if path == _PAYLOAD:
        value = show_payload(base64.b64decode(value))
    for line in yaml_text({path: value}).splitlines():
        write_line(f"{sign} {line}", _COLOURS[sign])
