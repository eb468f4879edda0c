"""Read the filter language of ListTasks and TaskSelector; docs/filters.md describes it.

A subset of AIP-160 that is strict where that leaves room: a filter may delete tasks, so AND and OR
do not stand side by side without parentheses, and a field compared with something that it cannot be
is an error. What a filter means is ``service.queue.tasks.matching``; equal texts give equal filters
on all nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, cast, get_args

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from service.limits import KEY_PARTS_MAX
from service.queue.commands import FOREVER_MS, Outcome, State
from service.queue.commands.filter import (
    AgeField,
    AgeIs,
    Attribute,
    Conjunction,
    Disjunction,
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

FILTER_CHARACTERS_MAX: Final = 2_048
FILTER_DEPTH_MAX: Final = 32
"""Parentheses within parentheses."""
_NUMBER_MAX: Final = (1 << 63) - 1
_CACHED_MAX: Final = 64

GRAMMAR: Final = r"""
    ?start: choice
    ?choice: term | conjunction | disjunction
    conjunction: term (_AND term)+
    disjunction: term (_OR term)+
    ?term: comparison | negation | "(" choice ")"
    negation: _NOT term
    comparison: FIELD OPERATOR (DURATION | NUMBER | WORD | STRING | ANYTHING)

    _AND.2: /and\b/i
    _OR.2: /or\b/i
    _NOT.2: /not\b/i
    FIELD: /[a-z_]+(\.[a-z0-9_]+)*/
    OPERATOR: "=" | "!=" | "<=" | "<" | ">=" | ">" | ":"
    DURATION.2: /[0-9]+(ms|s|m|h|d)\b/
    NUMBER: /-?[0-9]+/
    WORD: /[A-Za-z_*][A-Za-z0-9_.:\/*@-]*/
    ANYTHING.2: /\*(?![A-Za-z0-9_.:\/*@-])/
    STRING: /"(\\.|[^"\\])*"/
    %ignore /[ \t\r\n]+/
"""

_NAMES: Final = {
    "_AND": "AND",
    "_OR": "OR",
    "_NOT": "NOT",
    "FIELD": "a field",
    "OPERATOR": "an operator",
    "DURATION": "a duration",
    "NUMBER": "a number",
    "WORD": "a word",
    "STRING": "a quoted text",
    "ANYTHING": '"*"',
    "LPAR": '"("',
    "RPAR": '")"',
    "$END": "the end",
}
"""What the terminals of the grammar are called in errors."""

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]+)([a-z]+)")
_NESTING: Final = re.compile(r'"(?:\\.|[^"\\])*"|[()]')
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
}
_STATES: Final = {state.name: state for state in State if state is not State.GONE}
_OUTCOMES: Final = {end.name: end for end in Outcome if end is not Outcome.NONE}
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
        position: where, in characters from 0; the length of the text if something is missing.
        problem: what is wrong there, for people.
    """

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"at character {position}: {problem}")
        self.position = position
        self.problem = problem


@lru_cache(maxsize=_CACHED_MAX)
def read_filter(text: str) -> Filter | None:
    """Return what a filter says; None for an empty one, which lets every task through.

    Raises:
        FilterMalformed: it does not parse.
    """
    if not text.strip():
        return None
    if len(text) > FILTER_CHARACTERS_MAX:
        raise FilterMalformed(
            FILTER_CHARACTERS_MAX, f"a filter has at most {FILTER_CHARACTERS_MAX} characters"
        )
    _check_depth(text)
    try:
        return _parse(text)
    except UnexpectedInput as error:
        raise _malformed(text, error) from None


def _check_depth(text: str) -> None:
    """Bound the nesting, and with it the stack that a filter needs wherever it is looked at."""
    depth = 0
    for found in _NESTING.finditer(text):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth > FILTER_DEPTH_MAX:
            raise FilterMalformed(
                found.start(), f"parentheses are nested deeper than {FILTER_DEPTH_MAX}"
            )


def _malformed(text: str, error: UnexpectedInput) -> FilterMalformed:
    """Say in our own words where and why the parser stopped."""
    expected: set[str] = set()
    position = len(text)
    if isinstance(error, UnexpectedToken):
        expected = set(error.accepts)
        if error.token.type != "$END":
            position = error.token.start_pos or 0
        if error.token.type in ("_AND", "_OR") and expected & {"_AND", "_OR"}:
            return FilterMalformed(
                position, "AND and OR side by side: parentheses must say which goes first"
            )
    elif isinstance(error, UnexpectedCharacters):
        expected = set(error.allowed or ())
        # Declared by the library as what it is before the error: nothing.
        position = cast("int", error.pos_in_stream)
    *names, last = [name for terminal, name in _NAMES.items() if terminal in expected]
    some = f"{', '.join(names)} or {last}" if names else last
    return FilterMalformed(position, f"expected {some}")


class _Builder(Transformer[Token, Filter]):
    """Makes filters while the text is parsed."""

    def negation(self, terms: Sequence[Filter]) -> Filter:
        """Negate; twice is not at all, so that a filter is no deeper than its parentheses."""
        (term,) = terms
        return term.of if isinstance(term, Negation) else Negation(term)

    def conjunction(self, terms: Sequence[Filter]) -> Filter:
        """Combine by AND."""
        return Conjunction(tuple(terms))

    def disjunction(self, terms: Sequence[Filter]) -> Filter:
        """Combine by OR."""
        return Disjunction(tuple(terms))

    def comparison(self, tokens: Sequence[Token]) -> Filter:
        """Compare a field with what stands behind the operator."""
        field, operator, operand = tokens
        name = str(field)
        if operator == ":":
            return _presence(field, operand)
        for fields, build in _BUILDERS:
            if name in fields:
                return build(name, operator, operand)
        raise FilterMalformed(
            field.start_pos or 0, f"{name} is not a field; these are: {', '.join(FIELDS)}"
        )


def _presence(field: Token, operand: Token) -> Filter:
    if str(field) not in _ATTRIBUTES:
        can = ", ".join(_ATTRIBUTES)
        raise FilterMalformed(field.start_pos or 0, f'":" goes with {can}')
    if operand.type != "ANYTHING":
        raise FilterMalformed(operand.start_pos or 0, 'behind ":" stands "*"')
    return Has(_ATTRIBUTES[str(field)])


def _relation(operator: Token) -> tuple[Relation, bool]:
    """Return how numbers compare, and whether the opposite is meant."""
    if operator == "!=":
        return Relation.EQUAL, True
    return _RELATIONS[str(operator)], False


def _is_negated(operator: Token, name: str) -> bool:
    """Tell "!=" from "="; nothing else goes with what has no order."""
    if operator not in ("=", "!="):
        raise FilterMalformed(operator.start_pos or 0, f'{name} compares by "=" and "!=" only')
    return str(operator) == "!="


def _negated(one: Filter, *, if_so: bool) -> Filter:
    return Negation(one) if if_so else one


def _number(name: str, operator: Token, operand: Token) -> Filter:
    if operand.type != "NUMBER":
        raise FilterMalformed(operand.start_pos or 0, f"{name} is a number")
    number = int(operand)
    if not -_NUMBER_MAX - 1 <= number <= _NUMBER_MAX:
        raise FilterMalformed(operand.start_pos or 0, "not a 64-bit number")
    relation, opposite = _relation(operator)
    return _negated(NumberIs(_NUMBERS[name], relation, number), if_so=opposite)


def _age(name: str, operator: Token, operand: Token) -> Filter:
    parts = _DURATION.fullmatch(operand) if operand.type == "DURATION" else None
    if parts is None:
        raise FilterMalformed(
            operand.start_pos or 0, f"{name} is a duration: a number and one of ms, s, m, h, d"
        )
    age_ms = min(int(parts[1]) * _UNIT_MS[parts[2]], FOREVER_MS)
    relation, opposite = _relation(operator)
    return _negated(AgeIs(_AGES[name], relation, age_ms), if_so=opposite)


def _state(name: str, operator: Token, operand: Token) -> Filter:
    opposite = _is_negated(operator, name)
    if str(operand) not in _STATES:
        raise FilterMalformed(operand.start_pos or 0, f"a state is one of {', '.join(_STATES)}")
    return _negated(StateIs(_STATES[str(operand)]), if_so=opposite)


def _outcome(name: str, operator: Token, operand: Token) -> Filter:
    opposite = _is_negated(operator, name)
    if str(operand) not in _OUTCOMES:
        raise FilterMalformed(
            operand.start_pos or 0, f"an outcome is one of {', '.join(_OUTCOMES)}"
        )
    return _negated(OutcomeIs(_OUTCOMES[str(operand)]), if_so=opposite)


def _text(name: str, operator: Token, operand: Token) -> Filter:
    opposite = _is_negated(operator, name)
    return _negated(TextIs(_TEXTS[name], _pieces(operand)), if_so=opposite)


def _key_part(name: str, operator: Token, operand: Token) -> Filter:
    opposite = _is_negated(operator, name)
    return _negated(KeyPartIs(_KEY_PARTS[name], _pieces(operand)), if_so=opposite)


def _pieces(operand: Token) -> Sequence[str]:
    """Return a text cut at its stars; a star behind a backslash, in quotes, is itself."""
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
"""Which fields are compared in which way."""

_parser: Final = Lark(GRAMMAR, parser="lalr", transformer=_Builder(), maybe_placeholders=False)


def _parse(text: str) -> Filter:
    parsed: object = _parser.parse(text)
    # The transformer leaves no tree: every rule has become a filter.
    assert isinstance(parsed, get_args(Filter))
    return cast("Filter", parsed)
