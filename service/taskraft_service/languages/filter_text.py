"""Parse the filter language of ListTasks and TaskSelector; docs/filters.md describes it.

The language is a strict subset of AIP-160, because a filter can select tasks for deletion. Mixing
AND and OR needs parentheses, and comparing a field with an operand of the wrong type is an error.
``queue.entities.filter`` evaluates filters. Equal texts give equal filters on all nodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, cast, get_args

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from taskraft_service.languages.comparisons import FilterMalformed, compare
from taskraft_service.queue.entities.filter import Conjunction, Disjunction, Filter, Negation

FILTER_CHARACTERS_MAX: Final = 2_048
FILTER_DEPTH_MAX: Final = 32
"""Maximum nesting of parentheses."""
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
"""Names of the grammar's terminals in error messages."""

_NESTING: Final = re.compile(r'"(?:\\.|[^"\\])*+(?:"|\\?\Z)|[()]', re.DOTALL)
"""A quoted text or a parenthesis. A text without a closing quote matches up to the end of the
filter. Otherwise each further quote would start another scan, and the time would grow with the
square of the length.
"""


@lru_cache(maxsize=_CACHED_MAX)
def read_filter(text: str) -> Filter | None:
    """Parse a filter; return None for an empty one, which matches every task.

    Raises:
        FilterMalformed: the text does not parse.
    """
    if not text.strip():
        return None
    if len(text) > FILTER_CHARACTERS_MAX:
        raise FilterMalformed(
            FILTER_CHARACTERS_MAX, f"the filter is longer than {FILTER_CHARACTERS_MAX} characters"
        )
    _check_depth(text)
    try:
        return _parse(text)
    except UnexpectedInput as error:
        raise _malformed(text, error) from None


def _check_depth(text: str) -> None:
    """Check the nesting, which bounds the stack that evaluating the filter needs."""
    depth = 0
    for found in _NESTING.finditer(text):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth > FILTER_DEPTH_MAX:
            raise FilterMalformed(
                found.start(), f"parentheses are nested deeper than {FILTER_DEPTH_MAX}"
            )


def _malformed(text: str, error: UnexpectedInput) -> FilterMalformed:
    """Return the error for the position at which the parser stopped, with the expected tokens."""
    expected: set[str] = set()
    position = len(text)
    if isinstance(error, UnexpectedToken):
        expected = set(error.accepts)
        if error.token.type != "$END":
            position = error.token.start_pos or 0
        if error.token.type in ("_AND", "_OR") and expected & {"_AND", "_OR"}:
            return FilterMalformed(
                position, "AND and OR side by side; add parentheses to set their order"
            )
    elif isinstance(error, UnexpectedCharacters):
        expected = set(error.allowed or ())
        # The library declares the attribute as None, which is its value before an error.
        position = cast("int", error.pos_in_stream)
    *names, last = [name for terminal, name in _NAMES.items() if terminal in expected]
    some = f"{', '.join(names)} or {last}" if names else last
    return FilterMalformed(position, f"expected {some}")


class _Builder(Transformer[Token, Filter]):
    """Builds filters while the text is parsed."""

    def negation(self, terms: Sequence[Filter]) -> Filter:
        """Negate a filter; a double negation cancels out, so it adds no depth."""
        (term,) = terms
        return term.of if isinstance(term, Negation) else Negation(term)

    def conjunction(self, terms: Sequence[Filter]) -> Filter:
        """Combine filters by AND."""
        return Conjunction(tuple(terms))

    def disjunction(self, terms: Sequence[Filter]) -> Filter:
        """Combine filters by OR."""
        return Disjunction(tuple(terms))

    def comparison(self, tokens: Sequence[Token]) -> Filter:
        """Compare a field with the operand."""
        field, operator, operand = tokens
        return compare(field, operator, operand)


_parser: Final = Lark(GRAMMAR, parser="lalr", transformer=_Builder(), maybe_placeholders=False)


def _parse(text: str) -> Filter:
    parsed: object = _parser.parse(text)
    # The result is a filter and not a tree, because every rule builds a filter.
    assert isinstance(parsed, get_args(Filter))
    return cast("Filter", parsed)
