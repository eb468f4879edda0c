"""Compare the answers of a service with the answers of the oracle, by meaning.

Facts that another implementation cannot share are not compared: ids, wording, elapsed time, the
list of waiting calls, and the count of touches. Events are compared per task, within windows. A
window is a step with the sleeps that follow it, because background work may happen in either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from tests.oracle.trace import Json, Outcome, Step

UNCOMPARED: Final = frozenset(
    {"id", "message", "waiters", "next_event_in", "expires_in", "elapsed"}
)
VERBATIM: Final = "data"
"""Key of a task's payload. The payload is compared completely, with any keys in it."""
CALLS: Final = "calls"


def outcome_differences(want: Outcome, got: Outcome) -> list[str]:
    """Return the differences between two outcomes of one step, without events."""
    if want.error is not None or got.error is not None:
        return [] if want.error == got.error else [f"want {want}, got {got}"]
    return list(_differences(want.result, got.result, "result"))


def _differences(want: Json, got: Json, path: str) -> Iterator[str]:
    leaf = path.rpartition(".")[2]
    if leaf in UNCOMPARED:
        return
    if leaf == CALLS:
        want, got = _comparable_calls(want), _comparable_calls(got)
    if leaf != VERBATIM and isinstance(want, Mapping) and isinstance(got, Mapping):
        yield from _differences_by_key(want, got, path)
    elif leaf != VERBATIM and isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            yield f"{path}: want {want!r}, got {got!r}"
            return
        for place, (one, other) in enumerate(zip(want, got, strict=True)):
            yield from _differences(one, other, f"{path}[{place}]")
    elif isinstance(want, bool) is not isinstance(got, bool) or want != got:
        yield f"{path}: want {want!r}, got {got!r}"


def _differences_by_key(
    want: Mapping[str, Json], got: Mapping[str, Json], path: str
) -> Iterator[str]:
    for key in sorted(want.keys() | got.keys()):
        if key in want and key in got:
            yield from _differences(want[key], got[key], f"{path}.{key}")
        elif key not in UNCOMPARED:
            owner, there = ("trace", want) if key in want else ("run", got)
            yield f"{path}.{key}: only the {owner} has it: {there[key]!r}"


def _comparable_calls(calls: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of calls, with one name for the end of a delay.

    Touches are left out.
    """
    counts = {name: count for name, count in calls.items() if name not in ("delayed", "touch")}
    return {**counts, "delay": calls.get("delay", 0) + calls.get("delayed", 0)}


def event_differences(
    steps: Sequence[Step], got: Sequence[Outcome], diverges: Collection[str]
) -> list[str]:
    """Return the differences between the events of a run and those of the trace.

    Events of tasks in temporary tubes are left out: the change feed does not contain them.
    """
    found = []
    ignored = temporary_tasks(steps)
    for first, last in windows(steps):
        wanted: dict[str, list[tuple[str, str | None]]] = {}
        seen: dict[str, list[tuple[str, str | None]]] = {}
        for step, outcome in zip(steps[first:last], got[first:last], strict=True):
            if step.quirk not in diverges:
                _gather(step.outcome, wanted)
                _gather(outcome, seen)
        for task in ignored:
            wanted.pop(task, None)
            seen.pop(task, None)
        if wanted != seen:
            found.append(f"{steps[first]}: events: want {wanted!r}, got {seen!r}")
    return found


def temporary_tasks(steps: Sequence[Step]) -> set[str]:
    """Return the tasks that a trace puts into temporary tubes."""
    temporary: dict[str, bool] = {}
    tasks: set[str] = set()
    for step in steps:
        arguments, result = step.arguments, step.outcome.result
        if step.outcome.error is not None:
            continue
        tube = arguments.get("tube", "")
        if step.operation == "create_tube":
            options = arguments.get("options") or {}
            temporary.setdefault(tube, bool(options.get("temporary")))
        elif step.operation == "drop":
            temporary.pop(tube, None)
        elif step.operation == "put" and temporary.get(tube) and isinstance(result, Mapping):
            tasks.add(str(result.get("task")))
    return tasks


def windows(steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """Yield the first and last index of each window: a step and the sleeps that follow it."""
    first = 0
    for place in range(1, len(steps) + 1):
        if place == len(steps) or steps[place].operation != "sleep":
            yield first, place
            first = place


def _gather(outcome: Outcome, into: dict[str, list[tuple[str, str | None]]]) -> None:
    """Group events by task. An event without a name only wakes a neighbour in a sub-queue."""
    for name, task, state in outcome.events:
        if name:
            plain = "delay" if name == "delayed" else name
            into.setdefault(str(task), []).append((plain, "DONE" if name == "ttl" else state))
