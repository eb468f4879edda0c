"""Say which tasks a filter chooses.

``taskraft_service.languages.filter_text`` reads the language that filters are written in,
``taskraft_service.queue.entities.matching`` knows what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

from taskraft_service.queue.entities.task_view import State, TaskOutcome
from taskraft_service.queue.values import value


class Relation(Enum):
    """How two numbers compare. What differs is a ``Negation`` of what is equal."""

    EQUAL = "="
    BELOW = "<"
    AT_MOST = "<="
    ABOVE = ">"
    AT_LEAST = ">="


class NumberField(Enum):
    """Numbers of a task; instants that never come are later than all others."""

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
    """Texts of a task; empty where it has none."""

    TYPE = "type"
    SUBQUEUE = "subqueue"
    SESSION = "session"
    GROUP = "group"
    FAILURE_TYPE = "failure.type"
    ORIGIN = "origin"


class Attribute(Enum):
    """What a task may have or not."""

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
    """A number stands in a relation to another."""

    field: NumberField
    relation: Relation
    number: int


@value
class AgeIs:
    """An age in milliseconds stands in a relation to another."""

    field: AgeField
    relation: Relation
    age_ms: int


@value
class TextIs:
    """A text consists of these pieces, with anything in between; one piece: it is equal."""

    field: TextField
    pieces: Sequence[str]


@value
class KeyPartIs:
    """A part of the unique key, counted from 0, consists of these pieces; see ``TextIs``."""

    part: int
    pieces: Sequence[str]


@value
class StateIs:
    """The task is in a state."""

    state: State


@value
class OutcomeIs:
    """The task has ended, and in this way."""

    outcome: TaskOutcome


@value
class Has:
    """The task has something that most tasks do not have."""

    attribute: Attribute


@value
class Negation:
    """The filter does not let the task through."""

    of: Filter


@value
class Conjunction:
    """All of the filters let the task through."""

    of: Sequence[Filter]


@value
class Disjunction:
    """At least one of the filters lets the task through."""

    of: Sequence[Filter]


Comparison: TypeAlias = NumberIs | AgeIs | TextIs | KeyPartIs | StateIs | OutcomeIs | Has
Filter: TypeAlias = Comparison | Negation | Conjunction | Disjunction
