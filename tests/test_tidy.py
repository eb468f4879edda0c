"""Enforce the house rules that no linter knows; ``tests/tidy`` has one function for each."""

import ast

import pytest

from tests.tidy.language import is_unexplained
from tests.tidy.names import share_a_word
from tests.tidy.references import resolves
from tests.tidy.rules import RULES
from tests.tidy.sizes import lines_of_code
from tests.tidy.sources import functions, imported_names
from tests.tidy.tests import asserts

pytestmark = pytest.mark.real_time  # git lists the files


@pytest.mark.parametrize("rule", RULES)
def test_no_code_breaks_the_house_rule(rule):
    assert rule() == []


def test_a_function_is_measured_without_its_docstring():
    tree = ast.parse('def put():\n    """Put.\n\n    At length.\n    """\n    return 1\n')
    assert [lines_of_code(function) for function in functions(tree)] == [2]


def test_an_assertion_is_found_anywhere_in_a_test():
    parts = ("assert a", "with pytest.raises(E):\n  f()", "for a in b:\n  assert a", "check(a)")
    found = [any(asserts(node) for node in ast.walk(ast.parse(part))) for part in parts]
    assert found == [True, True, True, False]


def test_imports_are_found_by_their_full_names():
    tree = ast.parse("import taskraft.client\nfrom taskraft import errors\nfrom . import task\n")
    assert [name for name, _ in imported_names(tree)] == ["taskraft.client", "taskraft.errors"]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("put_plan", "PutPlan"),
        ("confchange", "ConfChange"),
        ("tubes", "Tube"),
        ("policies", "Policy"),
    ],
)
def test_a_module_shares_a_word_with_its_class(module, name):
    assert share_a_word(module, name)


def test_unrelated_names_share_no_word():
    assert not share_a_word("board", "QueueAdapter")
    assert not share_a_word("tube_change", "Tick")


def test_references_to_code_resolve():
    names = ("asyncio.Future", "tests/test_tidy.py", "Proposer.submit", "a <= b", "list")
    assert [resolves(name) for name in names] == [True] * len(names)


def test_references_to_nothing_do_not_resolve():
    names = ("asyncio.Futures", "tests/no_such_file.py", "Proposer.no_such_method")
    assert [resolves(name) for name in names] == [False] * len(names)


def test_a_suppression_needs_a_reason():
    lines = ("x = 1  # noqa" + ": S101", "x = 1  # noqa" + ": S101 - no input of users")
    assert [is_unexplained(line) for line in lines] == [True, False]
