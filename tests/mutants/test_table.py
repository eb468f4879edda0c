"""Check that the table of mutants fits the code, and that a killed mutant is reported as killed."""

import ast
import re

import pytest

from tests.mutants.killers import read_killers
from tests.mutants.mutant import SUITES, Mutant, TableBroken, read_table
from tests.mutants.trial import ROOT

MUTANTS = read_table()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_applies_and_is_valid_python(mutant):
    text = (ROOT / mutant.file).read_text()
    changed = mutant.changed(text)
    assert changed != text
    ast.parse(changed)


@pytest.mark.parametrize("killer", sorted(set(read_killers().values())))
def test_each_recorded_killer_exists(killer):
    file, _, function = killer.partition("::")
    name = function.partition("[")[0]
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_each_suite_exists():
    assert all(
        (ROOT / path.partition("::")[0]).exists() for suite in SUITES.values() for path in suite
    )


@pytest.mark.parametrize("text", ["x = 1\n", "x = 2\nx = 2\n"])
def test_a_mutant_whose_old_lines_do_not_occur_exactly_once_is_an_error(text):
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
def test_an_incomplete_table_is_an_error(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(TableBroken):
        read_table(tmp_path)
