"""Define the parsed form of a task filter, and evaluate filters.

``taskraft_service.languages.filter_text`` parses the text of a filter. Equal filters match equal
tasks on all replicas, because ages are computed with the clock of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from operator import attrgetter, eq, ge, gt, le, lt
from typing import Final, TypeAlias, assert_never

from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.entities.task_view import Extras
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.values import value


class Relation(Enum):
    """Relation between two numbers; "not equal" is a ``Negation`` of EQUAL."""

    EQUAL = "="
    BELOW = "<"
    AT_MOST = "<="
    ABOVE = ">"
    AT_LEAST = ">="


class NumberField(Enum):
    """Numeric fields of a task; ``NEVER_MS`` is larger than all other instants."""

    ID = "id"
    PRIORITY = "priority"
    ATTEMPT = "attempt"
    TIMES_BURIED = "extras.times_buried"
    PAYLOAD_BYTES = "payload_bytes"
    CREATED = "created_ms"
    SINCE = "since_ms"
    VISIBLE_AT = "visible_at_ms"
    EXPIRE_AT = "expire_at_ms"
    LEASE_UNTIL = "lease_until_ms"


INSTANTS: Final = frozenset(
    {
        NumberField.CREATED,
        NumberField.SINCE,
        NumberField.VISIBLE_AT,
        NumberField.EXPIRE_AT,
        NumberField.LEASE_UNTIL,
    }
)
"""Fields that are instants: a filter gives them in wall time, a task holds them in cluster time."""


class AgeField(Enum):
    """Durations from an instant of a task until now."""

    AGE = "created_ms"
    STATE_AGE = "since_ms"


class TextField(Enum):
    """Text fields of a task; empty if the task has none."""

    TYPE = "type"
    SUBQUEUE = "subqueue"
    SESSION = "session"
    GROUP = "group"
    FAILURE_TYPE = "failure.type"
    ORIGIN = "origin"


class Attribute(Enum):
    """Attributes that a task may or may not have."""

    KEY = "unique_key"
    GROUP = "group"
    FAILURE = "failure"
    RESULT = "result"
    PROGRESS = "progress"
    CANCEL = "cancel_requested"
    ORIGIN = "origin"
    WAITS = "waits_for"


@value
class NumberIs:
    """A numeric field is in a relation to a number."""

    field: NumberField
    relation: Relation
    number: int


@value
class AgeIs:
    """An age in milliseconds is in a relation to a number."""

    field: AgeField
    relation: Relation
    age_ms: int


@value
class TextIs:
    """A text field consists of the pieces, with any text between two of them."""

    field: TextField
    pieces: Sequence[str]


@value
class KeyPartIs:
    """A part of the unique key, counted from 0, consists of the pieces; see ``TextIs``."""

    part: int
    pieces: Sequence[str]


@value
class StateIs:
    """The task is in a state."""

    state: State


@value
class OutcomeIs:
    """The task has ended with an outcome."""

    outcome: TaskOutcome


@value
class Has:
    """The task has an attribute."""

    attribute: Attribute


@value
class Negation:
    """Matches the tasks that the inner filter does not match."""

    of: Filter


@value
class Conjunction:
    """Matches the tasks that all of the filters match."""

    of: Sequence[Filter]


@value
class Disjunction:
    """Matches the tasks that at least one of the filters matches."""

    of: Sequence[Filter]


Comparison: TypeAlias = NumberIs | AgeIs | TextIs | KeyPartIs | StateIs | OutcomeIs | Has


Filter: TypeAlias = Comparison | Negation | Conjunction | Disjunction

Predicate: TypeAlias = "Callable[[QueueTask], bool]"

_COMPARE: Final[Mapping[Relation, Callable[[int, int], bool]]] = {
    Relation.EQUAL: eq,
    Relation.BELOW: lt,
    Relation.AT_MOST: le,
    Relation.ABOVE: gt,
    Relation.AT_LEAST: ge,
}

_TEXTS: Final[Mapping[TextField, Callable[[QueueTask], str]]] = {
    TextField.TYPE: attrgetter("type"),
    TextField.SUBQUEUE: attrgetter("subqueue"),
    TextField.SESSION: lambda task: task.session.label if task.session is not None else "",
    TextField.GROUP: attrgetter("extras.group"),
    TextField.FAILURE_TYPE: lambda task: failure.type if (failure := task.extras.failure) else "",
    TextField.ORIGIN: lambda task: origin.tube if (origin := task.extras.origin) else "",
}

_PRESENT: Final[Mapping[Attribute, Callable[[Extras], bool]]] = {
    Attribute.KEY: lambda extras: bool(extras.unique_key),
    Attribute.GROUP: lambda extras: bool(extras.group),
    Attribute.FAILURE: lambda extras: extras.failure is not None,
    Attribute.RESULT: lambda extras: extras.result is not None,
    Attribute.PROGRESS: lambda extras: extras.progress is not None,
    Attribute.CANCEL: lambda extras: extras.cancel_requested,
    Attribute.ORIGIN: lambda extras: extras.origin is not None,
    Attribute.WAITS: lambda extras: extras.waiting is not None,
}


SCAN_STEPS: Final = 8
"""Steps of scanning one task without a filter; a step is about one comparison."""


def filter_steps(chosen: Filter | None) -> int:
    """Return the maximum number of comparisons and of pieces of text that a filter takes a task."""
    match chosen:
        case None:
            return 0
        case Negation(of):
            return 1 + filter_steps(of)
        case Conjunction(of) | Disjunction(of):
            return 1 + sum(map(filter_steps, of))
        case TextIs(_, pieces) | KeyPartIs(_, pieces):
            return 1 + len(pieces)
        case _:
            return 1


def scanned_tasks(plain: int, chosen: Filter | None) -> int:
    """Return how many tasks take as many steps with a filter as ``plain`` tasks take without."""
    return max(plain * SCAN_STEPS // (SCAN_STEPS + filter_steps(chosen)), 1)


def matcher(chosen: Filter | None, now_ms: int, wall_offset_ms: int) -> Predicate:
    """Return a predicate that evaluates a filter at an instant; None matches every task.

    Instants in the filter are in wall time, which is ``wall_offset_ms`` ahead of cluster time.
    """
    match chosen:
        case None:
            return lambda _task: True
        case Negation(of):
            inner = matcher(of, now_ms, wall_offset_ms)
            return lambda task: not inner(task)
        case Conjunction(of):
            every = [matcher(one, now_ms, wall_offset_ms) for one in of]
            return lambda task: all(one(task) for one in every)
        case Disjunction(of):
            some = [matcher(one, now_ms, wall_offset_ms) for one in of]
            return lambda task: any(one(task) for one in some)
        case _:
            return _comparer(chosen, now_ms, wall_offset_ms)


def _comparer(comparison: Comparison, now_ms: int, wall_offset_ms: int) -> Predicate:
    match comparison:
        case NumberIs(field, relation, number):
            number_of, compare = attrgetter(field.value), _COMPARE[relation]
            if field in INSTANTS:
                number -= wall_offset_ms
            return lambda task: compare(number_of(task), number)
        case AgeIs(field, relation, age_ms):
            instant_of, compare = attrgetter(field.value), _COMPARE[relation]
            return lambda task: compare(now_ms - instant_of(task), age_ms)
        case TextIs(field, pieces):
            text_of = _TEXTS[field]
            return lambda task: consists_of(text_of(task), pieces)
        case KeyPartIs(part, pieces):
            return lambda task: consists_of(_key_part(task, part), pieces)
        case StateIs(state):
            return lambda task: task.state is state
        case OutcomeIs(outcome):
            return lambda task: task.extras.outcome is outcome
        case Has(attribute):
            has = _PRESENT[attribute]
            return lambda task: has(task.extras)
        case _:
            assert_never(comparison)


def _key_part(task: QueueTask, part: int) -> str:
    key = task.extras.unique_key
    return key[part] if part < len(key) else ""


def consists_of(text: str, pieces: Sequence[str]) -> bool:
    """Return whether a text consists of the pieces in order, with any text between them.

    The time is proportional to the length of the text for each piece.
    """
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return text == first
    if not text.startswith(first):
        return False
    at = len(first)
    for piece in pieces[1:-1]:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(text) - len(last) >= at and text.endswith(last)
