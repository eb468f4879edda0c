"""Selection of tasks: by id, by unique key, or by the parsed form of a task filter.

``taskraft_service.languages.filter_text`` parses the text of a filter, and
``taskraft_service.queue.entities.matching`` evaluates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.values import value


class Relation(Enum):
    """Relation between two numbers; "not equal" is a ``Negation`` of EQUAL."""

    EQUAL = "="
    BELOW = "<"
    AT_MOST = "<="
    ABOVE = ">"
    AT_LEAST = ">="


class NumberField(Enum):
    """Numeric fields of a task; an instant that never comes is larger than all others."""

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
    """A text field consists of the pieces with any text between them; one piece: it is equal."""

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
    """The filter does not match the task."""

    of: Filter


@value
class Conjunction:
    """All filters match the task."""

    of: Sequence[Filter]


@value
class Disjunction:
    """At least one filter matches the task."""

    of: Sequence[Filter]


Comparison: TypeAlias = NumberIs | AgeIs | TextIs | KeyPartIs | StateIs | OutcomeIs | Has
Filter: TypeAlias = Comparison | Negation | Conjunction | Disjunction


@value
class ByIds:
    """The tasks with these ids."""

    ids: Sequence[int]


@value
class ByKeys:
    """The tasks that have these unique keys, or had them last."""

    keys: Sequence[tuple[str, ...]]


@value
class ByFilter:
    """The tasks that match a filter, in order of their ids.

    Args:
        filter: None matches all tasks.
        tasks_max: maximum number of tasks.
        after_id: only tasks with larger ids; continues an earlier scan.
    """

    filter: Filter | None
    tasks_max: int
    after_id: int = 0


Selector: TypeAlias = ByIds | ByKeys | ByFilter


def at_most(selector: Selector | None) -> int:
    """Return the maximum number of tasks that a selector selects; 0 for None."""
    if selector is None:
        return 0
    if isinstance(selector, ByFilter):
        return selector.tasks_max
    return len(selector.ids if isinstance(selector, ByIds) else selector.keys)
