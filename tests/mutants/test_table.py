"""Check that the table of mutants fits the code, and that a killed mutant is reported as killed."""

import ast
import re

import pytest

from tests.mutants.killers import read_killers
from tests.mutants.mutant import SUITES, Mutant, TableBroken, read_table
from tests.mutants.trial import ROOT

MUTANTS = read_table()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_finds_its_place_and_is_python(mutant):
    text = (ROOT / mutant.file).read_text()
    changed = mutant.changed(text)
    assert changed != text
    ast.parse(changed)


@pytest.mark.parametrize("killer", sorted(set(read_killers().values())))
def test_each_killer_is_where_it_was(killer):
    file, _, function = killer.partition("::")
    name = function.partition("[")[0]
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_each_suite_exists():
    assert all(
        (ROOT / path.partition("::")[0]).exists() for suite in SUITES.values() for path in suite
    )


@pytest.mark.parametrize("text", ["x = 1\n", "x = 2\nx = 2\n"])
def test_a_mutant_that_does_not_find_its_one_place_is_an_error(text):
    with pytest.raises(TableBroken, match=r"stand [02] times"):
        Mutant("m", "a.py", "why", "x = 2\n", "x = 3\n", "core").changed(text)


@pytest.mark.parametrize(
    "text",
    [
        "# a\nsuite: nothing\n",
        "# a\nsuite: core\n\n[m] f.py\nWhy.\n",
        "# a\nsuite: core\n\n[m] x\n-a",
    ],
)
def test_a_table_that_says_too_little_is_an_error(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(TableBroken):
        read_table(tmp_path)
