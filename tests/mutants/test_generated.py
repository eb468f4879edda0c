"""Check that generated mutants are valid Python, differ in one place each, and are complete."""

import ast

import pytest

from tests.mutants.generated import generate
from tests.mutants.mutant import SUITES
from tests.mutants.trial import ROOT

SOURCE = '''"""A module."""

LIMIT = 3


class Log:
    """A class."""

    def cut(self, index: int = 0) -> None:
        """Do something."""
        {statement}
'''


@pytest.mark.parametrize(
    ("statement", "mutated"),
    [
        ("return a < b", ["return (a <= b)", "return (a >= b)"]),
        ("return a and not b", ["return ((a) or (not b))"]),
        ("return min(a, é - b)", ["return max(a, é - b)", "return min(a, (é + b))"]),
        ("self.x = True", ["pass", "self.x = False"]),
        ("x = 7", ["x = 8"]),
        ("x: dict[1, 2] = y", []),
        ("if a: return", ["if not (a): return", "if a: pass"]),
        ("assert a < 3", []),
        ("raise Error(1)", []),
        ("return zip(a, strict=True)", []),
        ("assert_never(a)", []),
    ],
)
def test_each_possible_mistake_is_generated_at_each_place(tmp_path, statement, mutated):
    file = tmp_path / "replication/taskraft_replication/core/log.py"
    file.parent.mkdir(parents=True)
    text = SOURCE.format(statement=statement)
    file.write_text(text)
    found = [each.changed(text) for each in generate(tmp_path, ["replication"])]
    assert found == [SOURCE.format(statement=each) for each in mutated]


def test_generated_mutants_parse_and_have_unique_names_and_a_suite():
    mutants = generate(ROOT, ["replication/taskraft_replication/core"])
    assert len(mutants) > 1000
    assert len({each.name for each in mutants}) == len(mutants)
    assert {each.suite for each in mutants} <= set(SUITES)
    for each in mutants[::20]:
        text = (ROOT / each.file).read_text()
        assert ast.dump(ast.parse(each.changed(text))) != ast.dump(ast.parse(text))
