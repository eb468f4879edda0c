"""Build the comparisons of the filter language: its fields, operators and operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lark import Token

from taskraft_service.limits import KEY_PARTS_MAX
from taskraft_service.queue.entities.filter import (
    AgeField,
    AgeIs,
    Attribute,
    Filter,
    Has,
    KeyPartIs,
    Negation,
    NumberField,
    NumberIs,
    OutcomeIs,
    Relation,
    StateIs,
    TextField,
    TextIs,
)
from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.task_state import State, TaskOutcome

_NUMBER_MAX: Final = (1 << 63) - 1
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]+)([a-z]+)")
_PIECE: Final = re.compile(r"\\(.)|(\*)|([^\\*]+)", re.DOTALL)

_RELATIONS: Final[Mapping[str, Relation]] = {relation.value: relation for relation in Relation}
_NUMBERS: Final[Mapping[str, NumberField]] = {
    "id": NumberField.ID,
    "priority": NumberField.PRIORITY,
    "attempt": NumberField.ATTEMPT,
    "times_buried": NumberField.TIMES_BURIED,
    "payload_bytes": NumberField.PAYLOAD_BYTES,
    "created_ms": NumberField.CREATED,
    "since_ms": NumberField.SINCE,
    "visible_at_ms": NumberField.VISIBLE_AT,
    "expire_at_ms": NumberField.EXPIRE_AT,
    "lease_until_ms": NumberField.LEASE_UNTIL,
}
_AGES: Final[Mapping[str, AgeField]] = {
    "age": AgeField.AGE,
    "state_age": AgeField.STATE_AGE,
}
_TEXTS: Final[Mapping[str, TextField]] = {field.value: field for field in TextField}
_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "key": Attribute.KEY,
    "group": Attribute.GROUP,
    "failure": Attribute.FAILURE,
    "result": Attribute.RESULT,
    "progress": Attribute.PROGRESS,
    "cancel_requested": Attribute.CANCEL,
    "origin": Attribute.ORIGIN,
    "waits_for": Attribute.WAITS,
}
_STATES: Final = {state.name: state for state in State if state is not State.GONE}
_OUTCOMES: Final = {end.name: end for end in TaskOutcome if end is not TaskOutcome.NONE}
_KEY_PARTS: Final = {f"key.{part + 1}": part for part in range(KEY_PARTS_MAX)}
FIELDS: Final = (
    "state",
    "outcome",
    *_NUMBERS,
    *_AGES,
    *_TEXTS,
    *(field for field in _ATTRIBUTES if field not in _TEXTS),
    *_KEY_PARTS,
)
"""All fields of the language."""


class FilterMalformed(Exception):
    """A filter does not parse.

    Attributes:
        position: offset of the error in characters, from 0; the length of the text if something is
            missing.
        problem: description of the error.
    """

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"at character {position}: {problem}")
        self.position = position
        self.problem = problem


def compare(field: Token, operator: Token, operand: Token) -> Filter:
    """Return the filter that compares a field with an operand.

    Raises:
        FilterMalformed: the field does not exist or does not support this comparison.
    """
    name = str(field)
    if operator == ":":
        return _presence(field, operand)
    for fields, build in _BUILDERS:
        if name in fields:
            return build(name, operator, operand)
    raise FilterMalformed(
        field.start_pos or 0, f"{name} is not a field; the fields are {', '.join(FIELDS)}"
    )


def _presence(field: Token, operand: Token) -> Filter:
    if str(field) not in _ATTRIBUTES:
        can = ", ".join(_ATTRIBUTES)
        raise FilterMalformed(field.start_pos or 0, f'":" is allowed only after {can}')
    if operand.type != "ANYTHING":
        raise FilterMalformed(operand.start_pos or 0, 'expected "*" after ":"')
    return Has(_ATTRIBUTES[str(field)])


def _relation(operator: Token) -> tuple[Relation, bool]:
    """Return the relation of an operator, and whether its result is negated."""
    if operator == "!=":
        return Relation.EQUAL, True
    return _RELATIONS[str(operator)], False


def _is_negated(operator: Token, name: str) -> bool:
    """Return whether the operator is "!="; refuse operators other than "=" and "!="."""
    if operator not in ("=", "!="):
        raise FilterMalformed(operator.start_pos or 0, f'{name} supports only "=" and "!="')
    return str(operator) == "!="


def _negated(one: Filter, *, if_so: bool) -> Filter:
    return Negation(one) if if_so else one


def _number(name: str, operator: Token, operand: Token) -> Filter:
    if operand.type != "NUMBER":
        raise FilterMalformed(operand.start_pos or 0, f"{name} must be compared with a number")
    number = int(operand)
    if not -_NUMBER_MAX - 1 <= number <= _NUMBER_MAX:
        raise FilterMalformed(operand.start_pos or 0, "the number does not fit into 64 bits")
    relation, opposite = _relation(operator)
    return _negated(NumberIs(_NUMBERS[name], relation, number), if_so=opposite)


def _age(name: str, operator: Token, operand: Token) -> Filter:
    parts = _DURATION.fullmatch(operand) if operand.type == "DURATION" else None
    if parts is None:
        raise FilterMalformed(
            operand.start_pos or 0,
            f"{name} must be compared with a duration: a number and one of ms, s, m, h, d",
        )
    age_ms = min(int(parts[1]) * _UNIT_MS[parts[2]], FOREVER_MS)
    relation, opposite = _relation(operator)
    return _negated(AgeIs(_AGES[name], relation, age_ms), if_so=opposite)


def _state(name: str, operator: Token, operand: Token) -> Filter:
    opposite = _is_negated(operator, name)
    if str(operand) not in _STATES:
        raise FilterMalformed(
            operand.start_pos or 0, f"unknown state; use one of {', '.join(_STATES)}"
        )
    return _negated(StateIs(_STATES[str(operand)]), if_so=opposite)


def _outcome(name: str, operator: Token, operand: Token) -> Filter:
    opposite = _is_negated(operator, name)
    if str(operand) not in _OUTCOMES:
        raise FilterMalformed(
            operand.start_pos or 0, f"unknown outcome; use one of {', '.join(_OUTCOMES)}"
        )
    return _negated(OutcomeIs(_OUTCOMES[str(operand)]), if_so=opposite)


def _text(name: str, operator: Token, operand: Token) -> Filter:
    opposite = _is_negated(operator, name)
    return _negated(TextIs(_TEXTS[name], _pieces(operand)), if_so=opposite)


def _key_part(name: str, operator: Token, operand: Token) -> Filter:
    opposite = _is_negated(operator, name)
    return _negated(KeyPartIs(_KEY_PARTS[name], _pieces(operand)), if_so=opposite)


def _pieces(operand: Token) -> Sequence[str]:
    """Split a text at its stars; in quotes, a star after a backslash is a literal star."""
    text = operand[1:-1] if operand.type == "STRING" else str(operand)
    pieces = [""]
    for escaped, star, plain in _PIECE.findall(text):
        if star:
            pieces.append("")
        else:
            pieces[-1] += escaped or plain
    return tuple(pieces)


_BUILDERS: Final[Sequence[tuple[Mapping[str, object], Callable[[str, Token, Token], Filter]]]] = (
    ({"state": None}, _state),
    ({"outcome": None}, _outcome),
    (_NUMBERS, _number),
    (_AGES, _age),
    (_TEXTS, _text),
    (_KEY_PARTS, _key_part),
)
"""Builder of the comparison for each group of fields."""
