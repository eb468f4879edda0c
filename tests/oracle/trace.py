"""Read a recorded trace: the steps executed on a queue, with the answer of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

FORMAT: Final = 1
FOLDERS: Final = ("scripted", "random")

OPERATIONS: Final = frozenset(
    {
        "create_tube", "drop", "truncate", "tubes", "tube_exists",
        "put", "take", "ack", "release", "touch", "peek", "bury", "kick", "delete", "release_all",
        "statistics", "snapshot", "state",
        "connect", "disconnect", "identify", "cfg",
        "clock", "sleep", "await", "restart", "set_mode",
    }
)  # fmt: skip

Json = Any
"""Arguments or results of a step: texts, numbers, lists and dictionaries."""


class TraceUnreadable(Exception):
    """The file is not a valid trace; the text contains the position and the reason."""


@dataclass(slots=True, frozen=True)
class Outcome:
    """The outcome of a step: a result, or the class of its error.

    ``events`` are the changes of tasks during the step: name, task, state.
    """

    result: Json = None
    error: str | None = None
    events: Sequence[tuple[str, str | None, str | None]] = ()

    def __str__(self) -> str:
        return f"error {self.error}" if self.error is not None else f"result {self.result!r}"


@dataclass(slots=True, frozen=True)
class Step:
    """One step of a trace: connection, operation, arguments, outcome."""

    index: int
    session: str
    operation: str
    arguments: Mapping[str, Json]
    outcome: Outcome
    handle: str | None = None
    """Handle of a call that may block; the call runs beside the following steps."""
    quirk: str | None = None
    """Name of the oracle's peculiarity that the outcome shows, if any."""

    def __str__(self) -> str:
        return f"step {self.index} ({self.session} {self.operation} {dict(self.arguments)!r})"


@dataclass(slots=True, frozen=True)
class Trace:
    """A recorded run."""

    path: Path
    name: str
    config: Mapping[str, Json]
    timed: bool
    """Whether an outcome depends on elapsed time."""
    steps: Sequence[Step] = field(default_factory=tuple)

    @property
    def changes_nodes(self) -> bool:
        """Whether nodes stop or lose their leader in this trace."""
        return any(step.operation in ("restart", "set_mode") for step in self.steps)

    @property
    def switches_roles(self) -> bool:
        """Whether the queue becomes read-only in this trace."""
        return any(step.operation == "set_mode" for step in self.steps)

    @property
    def has_clock(self) -> bool:
        """Whether the steps are bound to the beats of a clock."""
        return any(step.operation == "clock" for step in self.steps)


def traces_below(folder: Path) -> list[Path]:
    """Return the files of the folders ``scripted`` and ``random``, sorted by name."""
    return [path for name in FOLDERS for path in sorted((folder / name).glob("*.json"))]


def read_trace(path: Path) -> Trace:
    """Return the trace of a file.

    Raises:
        TraceUnreadable: the file is malformed.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise TraceUnreadable(f"{path}: format {content['format']}, not {FORMAT}")
        quirks = set(content["quirks"])
        steps = tuple(_read_step(path, step, quirks) for step in content["steps"])
        return Trace(path, content["name"], content["config"], bool(content["timed"]), steps)
    except (ValueError, KeyError, TypeError) as error:
        raise TraceUnreadable(f"{path}: {type(error).__name__}: {error}") from error


def _read_step(path: Path, step: Mapping[str, Json], quirks: set[str]) -> Step:
    where = f"{path}: step {step['i']}"
    if step["op"] not in OPERATIONS:
        raise TraceUnreadable(f"{where}: operation {step['op']!r} is unknown")
    if ("result" in step) == ("error" in step):
        raise TraceUnreadable(f"{where}: exactly one of result and error is needed")
    if step.get("quirk") is not None and step["quirk"] not in quirks:
        raise TraceUnreadable(f"{where}: the header does not name the quirk {step['quirk']!r}")
    events = tuple(_read_events(step.get("events", ())))
    error = step["error"]["class"] if "error" in step else None
    outcome = Outcome(step.get("result"), error, events)
    return Step(
        step["i"], step["session"], step["op"], step["args"], outcome,
        step.get("async"), step.get("quirk"),
    )  # fmt: skip


def _read_events(events: Sequence[Json]) -> Iterator[tuple[str, str | None, str | None]]:
    for event in events:
        name, task, state = event
        yield str(name), task, state
