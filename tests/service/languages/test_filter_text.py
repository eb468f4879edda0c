"""The filter language: parsing, and the positions of errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_service.languages.comparisons import FIELDS, FilterMalformed
from taskraft_service.languages.filter_text import (
    FILTER_CHARACTERS_MAX,
    FILTER_DEPTH_MAX,
    read_filter,
)
from taskraft_service.queue.entities.filter import (
    AgeField,
    AgeIs,
    Attribute,
    Conjunction,
    Disjunction,
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

BURIED = StateIs(State.BURIED)
MANY = NumberIs(NumberField.ATTEMPT, Relation.ABOVE, 3)
READY = StateIs(State.READY)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", None),
        (" \n\t", None),
        ("state = BURIED", BURIED),
        ("state=BURIED", BURIED),
        ("state != BURIED", Negation(BURIED)),
        ("state = BURIED AND attempt > 3", Conjunction((BURIED, MANY))),
        ("state = BURIED and attempt > 3", Conjunction((BURIED, MANY))),
        ("state = BURIED OR state = READY", Disjunction((BURIED, READY))),
        ("NOT state = BURIED", Negation(BURIED)),
        ("NOT NOT state = BURIED", BURIED),
        ("NOT state != BURIED", BURIED),
        (
            "(state = BURIED OR state = READY) AND attempt > 3",
            Conjunction((Disjunction((BURIED, READY)), MANY)),
        ),
        ("((state = BURIED))", BURIED),
        ("outcome = FAILED", OutcomeIs(TaskOutcome.FAILED)),
        ("priority <= -3", NumberIs(NumberField.PRIORITY, Relation.AT_MOST, -3)),
        ("age >= 90s", AgeIs(AgeField.AGE, Relation.AT_LEAST, 90_000)),
        ("state_age < 2h", AgeIs(AgeField.STATE_AGE, Relation.BELOW, 7_200_000)),
        ("age > 99999999999999d", AgeIs(AgeField.AGE, Relation.ABOVE, FOREVER_MS)),
        ("type = mail.send", TextIs(TextField.TYPE, ("mail.send",))),
        ("type = mail*", TextIs(TextField.TYPE, ("mail", ""))),
        ('type = "mail*"', TextIs(TextField.TYPE, ("mail", ""))),
        ("type = *", TextIs(TextField.TYPE, ("", ""))),
        ('type = ""', TextIs(TextField.TYPE, ("",))),
        ("type = 42", TextIs(TextField.TYPE, ("42",))),
        (r'type = "a\*b\"c\\d*e"', TextIs(TextField.TYPE, ('a*b"c\\d', "e"))),
        ("failure.type = IOError", TextIs(TextField.FAILURE_TYPE, ("IOError",))),
        ("key.2 = eu", KeyPartIs(1, ("eu",))),
        ("key:*", Has(Attribute.KEY)),
        ("NOT failure:*", Negation(Has(Attribute.FAILURE))),
    ],
)
def test_a_filter_is_parsed(text, meant):
    assert read_filter(text) == meant


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("$", 0, "expected NOT, a field or"),
        ("state", 5, "expected an operator"),
        ("state =", 7, "expected a duration"),
        ("state = BURIED attempt > 3", 15, "expected AND, OR or the end"),
        ("state = BURIED AND", 18, "expected NOT, a field or"),
        ("(state = BURIED", 15, 'expected ")"'),
        ("state = BURIED)", 14, "expected the end"),
        ("state = BURIED AND id = 1 OR id = 2", 26, "parentheses"),
        ("id = 1 OR id = 2 AND state = BURIED", 17, "parentheses"),
        ("stat = BURIED", 0, "stat is not a field"),
        ("id = 1 AND stat = BURIED", 11, "stat is not a field"),
        ("key.9 = a", 0, "key.9 is not a field"),
        ("state = buried", 8, "READY, DELAYED"),
        ("state = GONE", 8, "READY, DELAYED"),
        ("outcome = NONE", 10, "PROCESSED"),
        ("state > BURIED", 6, 'supports only "=" and "!="'),
        ("type < a", 5, 'supports only "=" and "!="'),
        ("key.1 < a", 6, 'supports only "=" and "!="'),
        ('attempt > "3"', 10, "attempt must be compared with a number"),
        ("attempt > many", 10, "attempt must be compared with a number"),
        ("id = 9223372036854775808", 5, "does not fit into 64 bits"),
        ("age > 10", 6, "age must be compared with a duration"),
        ("age > 1h30", 7, "expected AND"),
        ("type:*", 0, "only after key"),
        ("failure:IOError", 8, 'expected "*" after'),
        ('type = "mail', 7, "expected a duration"),
        (f"{'(' * 33}id = 1", FILTER_DEPTH_MAX, "nested deeper"),
        (f"id = 1{' ' * FILTER_CHARACTERS_MAX}", FILTER_CHARACTERS_MAX, None),
        (f"type = {'a' * FILTER_CHARACTERS_MAX}", FILTER_CHARACTERS_MAX, "longer than"),
    ],
)
def test_an_error_has_its_position_and_problem(text, position, problem):
    with pytest.raises(FilterMalformed) as caught:
        read_filter(text)
    assert caught.value.position == position
    if problem:
        assert problem in caught.value.problem


def test_every_field_can_be_parsed():
    """Every listed field can be parsed."""
    operands = {"state": "READY", "outcome": "FAILED", "age": "1s", "state_age": "1s"}
    for field in FIELDS:
        texts = [f"{field}:*", *(f"{field} = {one}" for one in (operands.get(field, "1"), "1"))]
        assert any(refusal(text) is None for text in texts), field


def refusal(text):
    try:
        read_filter(text)
    except FilterMalformed as error:
        return error
    return None


def test_nested_filters_are_parsed_without_a_deep_stack():
    """A chain of NOT has the depth of its term."""
    assert read_filter("NOT " * 500 + "id = 1") == NumberIs(NumberField.ID, Relation.EQUAL, 1)


WORDS = st.sampled_from(
    [*FIELDS, "(", ")", "AND", "OR", "NOT", "=", "!=", ":", "<", "3", "10m", "*", '"a*"', "READY"]
)


@given(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=12).map(" ".join)))
def test_any_text_is_parsed_or_refused_with_a_position(text):
    error = refusal(text)
    if error is not None:
        assert 0 <= error.position <= len(text)
        assert error.problem
