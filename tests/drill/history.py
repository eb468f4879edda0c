"""Write and read histories of client operations: JSON lines, one event a line.

An operation is a pair of lines. ``invoke`` is written before the request is sent, and ``ok``,
``fail`` or ``info`` after the answer was read. ``fail`` means that the operation had no effect.
``info`` means that the effect is unknown. All times are in ns of one monotonic clock. ``rev`` in an
answer is the log position of the effect, and is left out if it is not known. ``uid`` is the content
of a task; no two puts have the same content, except for repeated requests.
``tests/drill/history_format.py`` names the fields of each operation.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OUTCOMES = frozenset({"ok", "fail", "info"})
NO_OPERATIONS = frozenset({"harness", "nemesis"})
"""Processes whose lines are no operations: the configuration and the faults."""


class MalformedHistory(Exception):
    """A line of a history breaks the format; the message has the number of the line, from 1."""


class Invocation:
    """An open operation of a recorder; close it exactly once."""

    def __init__(self, recorder: HistoryRecorder, head: dict[str, Any]) -> None:
        self._recorder = recorder
        self._head = head

    @property
    def value(self) -> dict[str, Any]:
        """The request."""
        return self._head["value"]

    def ok(self, **value: Any) -> None:
        """Record that the operation took effect, with its answer."""
        self._close("ok", value=value)

    def fail(self, error: str) -> None:
        """Record that the operation had no effect."""
        self._close("fail", value=self._head["value"], error=error)

    def info(self, error: str) -> None:
        """Record that the effect of the operation is unknown."""
        self._close("info", value=self._head["value"], error=error)

    def _close(self, kind: str, **fields: Any) -> None:
        self._recorder.write({**self._head, "type": kind, **fields})


class HistoryRecorder:
    """Writes one history; use it from one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w")
        self._numbers = itertools.count(1)

    def invoke(self, process: str, f: str, node: str | None = None, **value: Any) -> Invocation:
        """Open an operation; call this before the request is sent."""
        head = {"process": process, "f": f, "value": value, "op": next(self._numbers)}
        if node is not None:
            head["node"] = node
        self.write({**head, "type": "invoke"})
        return Invocation(self, head)

    def remark(self, process: str, f: str, **value: Any) -> None:
        """Write a line of the harness or of the nemesis."""
        self.write({"process": process, "type": "info", "f": f, "value": value})

    def write(self, line: dict[str, Any]) -> None:
        """Write a line with the present time."""
        line["time"] = time.monotonic_ns()
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Write everything to the file."""
        self._file.close()


@dataclass(slots=True)
class Operation:
    """One operation of a client."""

    process: str
    f: str
    value: dict[str, Any]
    invoked_ns: float
    ended_ns: float = math.inf
    """Time at which the answer was read; infinite if the effect is unknown."""
    outcome: str = "info"
    answer: dict[str, Any] = field(default_factory=dict)
    """The answer in the ``ok`` line."""
    error: str = ""
    node: str = ""

    @property
    def is_ok(self) -> bool:
        """Return whether the operation took effect."""
        return self.outcome == "ok"

    @property
    def may_have_happened(self) -> bool:
        """Return whether the operation took effect, or may take effect now or later."""
        return self.outcome != "fail"

    @property
    def request_id(self) -> str | None:
        """The idempotency key; None if the request had none."""
        return self.value.get("request_id")


@dataclass(slots=True)
class History:
    """The operations of a history in the order of their invocations, and all other lines."""

    config: dict[str, Any]
    operations: list[Operation]
    faults: list[dict[str, Any]]
    """Lines of the nemesis."""

    def of(self, *kinds: str) -> Iterator[Operation]:
        """Yield the operations of some kinds."""
        return (one for one in self.operations if one.f in kinds)


def numbered_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the lines of a file with their numbers, from 1; the last one may be incomplete.

    Raises:
        MalformedHistory: a line is no JSON object.
    """
    text = path.read_text()
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            parsed = json.loads(line)
        except ValueError:
            if number == len(lines) and not text.endswith("\n"):
                return
            raise MalformedHistory(f"line {number}: no JSON") from None
        if not isinstance(parsed, dict):
            raise MalformedHistory(f"line {number}: no object")
        yield number, parsed


def _complete_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in numbered_lines(path):
        if not {"process", "type", "f", "time"} <= line.keys():
            raise MalformedHistory(f"line {number}: a field is missing")
        yield number, line


def read_history(path: Path) -> History:
    """Read a history.

    Raises:
        MalformedHistory: a line cannot be read, or completes no open operation.
    """
    return history_of(_complete_lines(path))


def history_of(lines: Iterable[tuple[int, dict[str, Any]]]) -> History:
    """Build a history from numbered lines in any order; see ``read_history``."""
    config: dict[str, Any] = {}
    faults: list[dict[str, Any]] = []
    found: list[Operation] = []
    opened: dict[tuple[str, Any], Operation] = {}
    # Two lines of one process with the same time keep their order; an invocation precedes its
    # answer.
    for number, line in sorted(lines, key=lambda one: (one[1]["time"], one[1]["type"] != "invoke")):
        process, kind = line["process"], line["type"]
        if process in NO_OPERATIONS:
            if process == "nemesis":
                faults.append(line)
            elif line["f"] == "config":
                config = line["value"]
            continue
        key = process, line.get("op")
        if kind == "invoke":
            if key in opened:
                raise MalformedHistory(f"line {number}: {process} has this operation open already")
            one = Operation(process, line["f"], line.get("value") or {}, line["time"])
            one.node = line.get("node", "")
            opened[key] = one
            found.append(one)
        elif kind in OUTCOMES:
            if key not in opened:
                raise MalformedHistory(f"line {number}: {process} has no such operation open")
            _close(opened.pop(key), line)
        else:
            raise MalformedHistory(f"line {number}: unknown type {kind!r}")
    return History(config, found, faults)


def _close(one: Operation, line: dict[str, Any]) -> None:
    one.outcome, one.error = line["type"], line.get("error", "")
    if one.outcome == "ok":
        one.answer = line.get("value") or {}
    if one.outcome != "info":
        one.ended_ns = line["time"]
