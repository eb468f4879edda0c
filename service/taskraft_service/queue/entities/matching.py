"""Evaluate filters.

Equal filters match equal tasks on all replicas, because ages are computed with the clock of the
log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, eq, ge, gt, le, lt
from typing import Final, TypeAlias, assert_never

from taskraft_service.queue.entities.filter import (
    AgeIs,
    Attribute,
    Comparison,
    Conjunction,
    Disjunction,
    Filter,
    Has,
    KeyPartIs,
    Negation,
    NumberIs,
    OutcomeIs,
    Relation,
    StateIs,
    TextField,
    TextIs,
)
from taskraft_service.queue.entities.task_view import Extras
from taskraft_service.queue.entities.tube import QueueTask

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


def matcher(chosen: Filter | None, now_ms: int) -> Predicate:
    """Return a predicate that evaluates a filter at an instant; None matches every task."""
    match chosen:
        case None:
            return lambda _task: True
        case Negation(of):
            inner = matcher(of, now_ms)
            return lambda task: not inner(task)
        case Conjunction(of):
            every = [matcher(one, now_ms) for one in of]
            return lambda task: all(one(task) for one in every)
        case Disjunction(of):
            some = [matcher(one, now_ms) for one in of]
            return lambda task: any(one(task) for one in some)
        case _:
            return _comparer(chosen, now_ms)


def _comparer(comparison: Comparison, now_ms: int) -> Predicate:
    match comparison:
        case NumberIs(field, relation, number):
            number_of, compare = attrgetter(field.value), _COMPARE[relation]
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
