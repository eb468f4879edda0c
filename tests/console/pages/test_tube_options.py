"""The options of a tube: the differences of a form, and the same change as a command."""

import pytest

from taskraft import TubeInfo
from taskraft.v1.tube_service_pb2 import Tube, TubeOptions
from taskraft_console.pages.page import FormRefused
from taskraft_console.pages.tube_options import FIELDS, option_values, update_forms
from taskraft_console.pages.value_form import value_changes

FORM = {"concurrency": "8", "ttr": "60s", "ttl": "", "dead_letter_tube": ""}


def option_changes(info, form):
    return value_changes(FIELDS, option_values(info), form)


@pytest.fixture
def tube_info():
    return TubeInfo.of(Tube(name="billing", options=TubeOptions(concurrency=8, ttr_ms=60_000)))


@pytest.mark.parametrize(
    ("name", "value", "before", "after"),
    [
        ("concurrency", "9", "8", "9"),
        ("concurrency", "0", "8", ""),
        ("concurrency", "", "8", ""),
        ("ttr", "90s", "1m", "90s"),
        ("ttl", "2h", "", "2h"),
        ("dead_letter_tube", "0", "", "0"),
    ],
)
def test_a_form_changes_the_values_that_differ(tube_info, name, value, before, after):
    [change] = option_changes(tube_info, {**FORM, name: value})
    assert (change.field.name, change.before, change.after) == (name, before, after)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ttr", "60s"),
        ("ttr", " 60 "),
        ("concurrency", "008"),
        ("ttl", "0"),
        ("capacity_tasks", "0"),
    ],
)
def test_another_writing_of_the_value_in_force_changes_nothing(tube_info, name, value):
    assert option_changes(tube_info, {**FORM, name: value}) == ()


@pytest.mark.parametrize(
    ("name", "value"), [("concurrency", "-1"), ("concurrency", "x"), ("ttr", "soon")]
)
def test_an_unusable_value_is_refused(tube_info, name, value):
    with pytest.raises(FormRefused, match=value):
        option_changes(tube_info, {**FORM, name: value})


def test_a_change_has_a_form_for_the_command_line_and_for_python(tube_info):
    form = {"concurrency": "0", "ttr": "2m", "capacity_tasks": "500"}
    forms = update_forms("a b", option_changes(tube_info, form))
    assert forms.command == (
        "taskraft tube update 'a b' --reset concurrency --ttr 2m --capacity-tasks 500"
    )
    assert forms.python == (
        "client.update_tube('a b', ttr='2m', capacity_tasks=500, reset=['concurrency'])"
    )
