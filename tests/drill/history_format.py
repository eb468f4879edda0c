"""Check that a history file keeps its format, so that any checker can read it.

``tests/drill/history.py`` describes the lines. The tables below name the fields of each operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.drill.history import NO_OPERATIONS, OUTCOMES, MalformedHistory, numbered_lines

Test = Callable[[Any], bool]


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer; a truth value is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether a value is a number that is not negative."""
    return not isinstance(value, bool) and isinstance(value, int | float) and value >= 0


def is_time(value: Any) -> bool:
    """Return whether a value is a duration in seconds, or None for no limit."""
    return value is None or is_number(value)


def is_text(value: Any) -> bool:
    """Return whether a value is a text."""
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    """Return whether a value is a truth value."""
    return isinstance(value, bool)


def is_state(value: Any) -> bool:
    """Return whether a value is the state of a task; None: the task is gone."""
    return value in ("r", "t", "!", "~", None)


def is_position(value: Any) -> bool:
    """Return whether a value is a log position: an index, or an index and a place."""
    if isinstance(value, list):
        return len(value) == 2 and all(map(is_whole, value))
    return is_whole(value) and value > 0


def is_list_of(test: Test) -> Test:
    """Return a test for a list whose items pass a test."""
    return lambda value: isinstance(value, list) and all(map(test, value))


def is_listed(value: Any) -> bool:
    """Return whether a value is a task in a listing."""
    fields = {"id": is_whole, "uid": is_text, "state": is_state}
    return isinstance(value, dict) and not [*wrong_fields(value, fields)]


def wrong_fields(
    value: Mapping[str, Any], required: Mapping[str, Test], optional: Mapping[str, Test] = {}
) -> Iterator[str]:
    """Yield the fields that are missing, unknown or wrong."""
    for name in required.keys() - value.keys():
        yield f"{name} is missing"
    for name, content in value.items():
        test = required.get(name) or optional.get(name)
        if test is None:
            yield f"{name} is unknown"
        elif not test(content):
            yield f"{name} is {content!r}"


@dataclass(frozen=True)
class Form:
    """The fields of one kind of operation: of the request and of the answer."""

    required: Mapping[str, Test]
    optional: Mapping[str, Test] = field(default_factory=dict)
    answer: Mapping[str, Test] = field(default_factory=dict)
    answer_optional: Mapping[str, Test] = field(default_factory=dict)
    one_of: tuple[str, ...] = ()
    """Optional fields of which a request has exactly one."""


_TUBE: Final = {"tube": is_text}
_TASK: Final = {**_TUBE, "id": is_whole}
_SESSION: Final = {"session": is_text}
_HELD: Final = {**_SESSION, "token": is_whole, "request_id": is_text}
_PLACE: Final = {"position": is_text, "pri": is_whole}
_LATER: Final = {"delay": is_number, "ttl": is_number}

FORMS: Final[Mapping[str, Form]] = {
    "put": Form(
        {**_TUBE, "uid": is_text},
        {"request_id": is_text, "utube": is_text, "ttr": is_number, **_PLACE, **_LATER},
        {"id": is_whole},
    ),
    "take": Form(
        {},
        {
            **_TUBE,
            **_SESSION,
            "tubes": is_list_of(is_text),
            "request_id": is_text,
            "filter": lambda value: True,
        },
        {"id": lambda value: value is None or is_whole(value)},
        {"uid": is_text, "token": is_whole, **_TUBE, "utube": is_text, "ttr": is_time},
        one_of=("tube", "tubes"),
    ),
    "ack": Form(_TASK, _HELD),
    "release": Form(_TASK, {**_HELD, **_PLACE, **_LATER}),
    "bury": Form(_TASK, {**_HELD, **_PLACE}),
    "touch": Form(
        _TASK,
        {**_HELD, "increment": is_number, "restart": is_flag},
        one_of=("increment", "restart"),
    ),
    "delete": Form(_TASK),
    "kick": Form(
        {**_TUBE, "count": is_whole},
        {"ids": is_list_of(is_whole), "delay": is_number},
        {"count": is_whole},
    ),
    "release_all": Form(_TUBE),
    "truncate": Form(_TUBE),
    "peek": Form(_TASK, {}, {"state": is_state}, {"uid": is_text}),
    "snapshot": Form(_TUBE, {}, {"tasks": is_list_of(is_listed), "complete": is_flag}),
    "drained": Form(_TUBE),
    "session_open": Form({}, {}, _SESSION),
    "session_attach": Form(_SESSION),
    "heartbeat": Form(_SESSION),
    "session_close": Form(_SESSION),
    "disconnect": Form(_SESSION),
    "digest": Form({}, {"final": is_flag}, {"applied": is_whole, "digest": is_text}),
}
LINE: Final = {
    "process": is_text,
    "type": lambda value: value == "invoke" or value in OUTCOMES,
    "f": is_text,
    "value": lambda value: isinstance(value, dict),
    "time": is_whole,
}
LINE_OPTIONAL: Final = {
    "node": is_text,
    "error": is_text,
    "op": lambda value: is_whole(value) or is_text(value),
}
TUBE: Final = {
    "type": is_text,
    "ttl": is_time,
    "ordered": is_flag,
    "higher_first": is_flag,
    "concurrency": is_whole,
}
CONFIG: Final = {
    "session_ttr": is_time,
    "tubes": lambda value: (
        isinstance(value, dict)
        and not any([*wrong_fields(tube, {"ttr": is_time}, TUBE)] for tube in value.values())
    ),
}
CONFIG_OPTIONAL: Final = {
    "disconnect_ttr": is_time,
    "slack": is_number,
    "release_on_promotion": lambda value: value in ("none", "all"),
    "release_position": lambda value: value in ("original", "any"),
    "monotonic_ids": is_flag,
    "rev_unique": is_flag,
    "dedup_window": is_number,
    "silent_horizon": is_number,
    "wakeup_bound": is_time,
    "ttl_max_late": is_time,
    "allow_stale_empty": is_flag,
}

Numbered = tuple[int, dict[str, Any]]


def faults_of(path: Path) -> list[str]:
    """Return what breaks the format in a file, with the numbers of the lines, from 1."""
    try:
        lines = list(numbered_lines(path))
    except MalformedHistory as error:
        return [str(error)]
    faults = [
        f"line {number}: {fault}"
        for number, line in lines
        for fault in wrong_fields(line, LINE, LINE_OPTIONAL)
    ]
    faults = faults or [*_wrong_config(lines), *_wrong_operations(lines)]
    return faults or [*_shared_contents(lines), *_unstated_delays(lines), *_missing_ends(lines)]


def _wrong_config(lines: Iterable[Numbered]) -> Iterator[str]:
    found = [
        line["value"] for _, line in lines if line["f"] == "config" and line["process"] == "harness"
    ]
    if len(found) != 1:
        yield f"{len(found)} lines of configuration"
    for value in found:
        yield from (f"config: {each}" for each in wrong_fields(value, CONFIG, CONFIG_OPTIONAL))


def _in_order(lines: Iterable[Numbered]) -> list[Numbered]:
    """Return the lines of operations by time; an invocation precedes its answer."""
    operations = (one for one in lines if one[1]["process"] not in NO_OPERATIONS)
    return sorted(operations, key=lambda one: (one[1]["time"], one[1]["type"] != "invoke"))


def _wrong_operations(lines: Iterable[Numbered]) -> Iterator[str]:
    """Check the fields of each operation, and that each answer closes an open operation."""
    opened: dict[tuple[str, Any], str] = {}
    unknown: set[str] = set()
    for number, line in _in_order(lines):
        f, kind, key = line["f"], line["type"], (line["process"], line.get("op"))
        form = FORMS.get(f)
        if form is None:
            yield f"line {number}: {f} is no operation"
        elif kind == "invoke":
            if key in opened:
                yield f"line {number}: {key[0]} has this operation open already"
            if key[0] in unknown:
                yield f"line {number}: {key[0]} goes on after an unknown outcome"
            opened[key] = f
            yield from (f"line {number}: {f}: {each}" for each in _wrong_request(form, line))
        else:
            if opened.pop(key, None) != f:
                yield f"line {number}: {key[0]} has no such operation open"
            if kind == "ok":
                yield from (f"line {number}: {f}: {each}" for each in _wrong_answer(form, line))
            elif kind == "info":
                unknown.add(key[0])


def _wrong_request(form: Form, line: Mapping[str, Any]) -> Iterator[str]:
    yield from wrong_fields(line["value"], form.required, form.optional)
    if form.one_of and len(line["value"].keys() & {*form.one_of}) != 1:
        yield f"not exactly one of {', '.join(form.one_of)}"
    if line["f"] == "digest" and "node" not in line:
        yield "node is missing"


def _wrong_answer(form: Form, line: Mapping[str, Any]) -> Iterator[str]:
    value = line["value"]
    optional = {**form.answer_optional, "rev": is_position}
    yield from wrong_fields(value, form.answer, optional)
    if line["f"] == "take" and value.get("id") is not None and "uid" not in value:
        yield "uid is missing"


def _shared_contents(lines: Iterable[Numbered]) -> Iterator[str]:
    """Check that each put has a content of its own: contents show which unanswered put happened."""
    first: dict[str, Any] = {}
    for number, line in _in_order(lines):
        value = line["value"]
        if line["f"] == "put" and line["type"] == "invoke":
            request = value.get("request_id", (line["process"], line.get("op")))
            if first.setdefault(value["uid"], request) != request:
                yield f"line {number}: an earlier put has the content {value['uid']}"


def _unstated_delays(lines: Iterable[Numbered]) -> Iterator[str]:
    """Check that each delayed task was delayed by a request that states the time."""
    ordered = _in_order(lines)
    requests: dict[tuple[str, Any], dict[str, Any]] = {}
    stated: set[tuple[str, Any]] = set()
    for _, line in ordered:
        value = line["value"]
        if line["type"] == "invoke":
            requests[line["process"], line.get("op")] = line
            if value.get("delay"):
                stated.add((value["tube"], value.get("uid", value.get("id"))))
            continue
        if line["type"] != "ok" or line["f"] not in ("peek", "snapshot"):
            continue
        asked = requests[line["process"], line.get("op")]["value"]
        tasks = value["tasks"] if line["f"] == "snapshot" else [{**value, "id": asked["id"]}]
        for task in tasks:
            causes = {(asked["tube"], each) for each in (task.get("uid"), task["id"], None)}
            if task["state"] == "~" and not causes & stated:
                name = f"task {task['id']} of {asked['tube']}"
                yield f"{name} is delayed, and no request says until when"


def _missing_ends(lines: Iterable[Numbered]) -> Iterator[str]:
    """Check that the harness has listed or drained each tube, and compared the replicas."""
    tubes: set[str] = set()
    ended: set[str] = set()
    asked: dict[tuple[str, Any], str] = {}
    is_compared = False
    for _, line in _in_order(lines):
        key = line["process"], line.get("op")
        if line["type"] == "invoke":
            asked[key] = line["value"].get("tube", "")
            is_compared |= line["f"] == "digest" and line["value"].get("final", False)
        elif line["type"] == "ok" and line["f"] in ("snapshot", "drained"):
            ended |= {asked[key]} if line["value"].get("complete", True) else set()
    for _, line in lines:
        if line["f"] == "config":
            tubes |= line["value"]["tubes"].keys()
    for tube in sorted(tubes - ended):
        yield f"no complete listing of {tube}"
    if not is_compared:
        yield "no final digest"
