"""Run scripts and find the first directive whose output differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from tests.raft_traces.interaction import Interaction
from tests.raft_traces.records import UnreadableOutput, read_configuration, read_records
from tests.raft_traces.script import SEPARATOR, Directive, ScriptError, parse_script
from tests.raft_traces.tables import MembershipTable, QuorumTable


class Player(Protocol):
    """Executes the directives of one kind of script."""

    def run(self, directive: Directive) -> str:
        """Execute ``directive``; return its output."""


@dataclass(slots=True, frozen=True)
class Difference:
    """The first difference between a run and its file."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        """Return one paragraph for the report."""
        return f"{self.path}:{self.line}: {self.text}"


def replay(path: Path) -> Difference | None:
    """Run the script at ``path``; return the first difference, or None."""
    try:
        directives = parse_script(path)
    except (ScriptError, UnicodeDecodeError) as error:
        return Difference(path, 1, f"is no script: {error}")
    player = player_of(directives)
    if player is None:
        return Difference(path, directives[0].line, f"unknown command {directives[0].command!r}")
    for directive in directives:
        text = _difference(player, directive)
        if text is not None:
            return Difference(path, directive.line, f"{directive.command}: {text}")
    return None


def rewrite(path: Path) -> None:
    """Write the core's output into the script at ``path``, for review as a diff."""
    directives = parse_script(path)
    player = player_of(directives)
    assert player is not None, f"unknown command {directives[0].command!r}"
    parts = [f"{each.head}\n{SEPARATOR}\n{player.run(each)}\n" for each in directives]
    path.write_text("\n".join(part.lstrip("\n") for part in parts))


def player_of(directives: Sequence[Directive]) -> Player | None:
    """Return a player that knows all ``directives``, or None."""
    for kind in (Interaction, QuorumTable, MembershipTable):
        if all(kind.knows(each.command) for each in directives):
            return kind()
    return None


def _difference(player: Player, directive: Directive) -> str | None:
    try:
        actual = player.run(directive)
    except Exception as error:  # noqa: BLE001 - any error is reported with the name of the file
        return f"failed with {type(error).__name__}: {error}"
    try:
        expected_records = _records(player, directive.expected)
    except UnreadableOutput as unreadable:
        return f"the expected output is not understood: {unreadable}"
    actual_records = _records(player, actual)
    for expected, found in zip_longest(expected_records, actual_records):
        if expected != found:
            return f"expected {expected}, found {found}\n--- all that was found:\n{actual}"
    return None


def _records(player: Player, output: str) -> list[object]:
    """Parse ``output``; tables of indexes and configurations are lines of words."""
    if isinstance(player, Interaction):
        # No output means "ok", and so does a log line without a fact.
        return [each for each in read_records(output) if each[0] != "ok"]
    if isinstance(player, MembershipTable) and output.startswith("voters="):
        first, *rest = output.splitlines()
        return [read_configuration(first), *(line.split() for line in rest)]
    return [line.split() for line in output.splitlines()]
