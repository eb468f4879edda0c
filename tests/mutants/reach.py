"""Record which tests run which lines, to run only the tests that can detect a mutant.

Run ``python -m tests.mutants.reach FILE tests/service/api ...``: it runs the tests once under
coverage, and writes to FILE which tests ran each line and how long each test took. Then ``python -m
tests.mutants --generated service/taskraft_service/api --reach FILE`` runs for each mutant the tests
that reach its line, the fastest first, up to a time budget. Use it for code that ``screen`` cannot
fork: code with gRPC, threads and real nodes. A line that no test reaches is reported at once.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from coverage import Coverage

from tests.mutants.mutant import Changed
from tests.mutants.trial import ROOT

QUICK_SECONDS: Final = 8.0
"""Maximum duration of the first group of tests; it kills almost every mutant that dies."""
QUICK_TESTS_MAX: Final = 25
BUDGET_SECONDS: Final = 50.0
"""Maximum duration of all tests of one mutant."""
REACHED_SECONDS_MAX: Final = 20
"""Time limit of one test; most tests take a tenth of a second."""
SOURCES: Final = ("service", "replication")


@dataclass(slots=True, frozen=True)
class Reach:
    """The tests that run each line, with the duration of each test in seconds."""

    tests: Sequence[str]
    seconds: Sequence[float]
    """Duration of each test in seconds."""
    lines: Mapping[str, Mapping[str, Sequence[int]]]
    """By file and line number (as text), the indexes of the tests that run the line."""

    def groups_for(self, mutant: Changed, text: str) -> list[list[str]]:
        """Return groups of tests that reach the changed lines of ``text``, the fastest first."""
        known = self.lines.get(mutant.file, {})
        reached = {test for line in _changed_lines(mutant, text) for test in known.get(line, ())}
        quick: list[str] = []
        others: list[str] = []
        spent = 0.0
        for test in sorted(reached, key=lambda each: (self.seconds[each], each)):
            spent += self.seconds[test]
            if spent <= QUICK_SECONDS and len(quick) < QUICK_TESTS_MAX:
                quick.append(self.tests[test])
            elif spent <= BUDGET_SECONDS or not (quick or others):
                others.append(self.tests[test])
        return [group for group in (quick, others) if group]


def read_reach(path: Path) -> Reach:
    """Return the data that a run of this module has written."""
    return Reach(**json.loads(path.read_text()))


def _changed_lines(mutant: Changed, text: str) -> Iterator[str]:
    """Yield the lines of the innermost statement that a mutant changes, without its body."""
    pairs = zip(text.splitlines(), mutant.changed(text).splitlines(), strict=False)
    first = next(number for number, (old, new) in enumerate(pairs, start=1) if old != new)
    around = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and node.lineno <= first <= (node.end_lineno or 0)
    ]
    innermost = max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)))
    body = getattr(innermost, "body", None)
    end = max(first, body[0].lineno - 1) if body else innermost.end_lineno or first
    yield from (str(line) for line in range(innermost.lineno, end + 1))


class _Learner:
    """A pytest plugin that records which lines each test runs."""

    def __init__(self) -> None:
        self._coverage = Coverage(data_file=None, source=SOURCES, config_file=False)
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record one test, including its fixtures."""
        self._coverage.start()
        self._coverage.switch_context(item.nodeid)
        begun = time.monotonic()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = round(time.monotonic() - begun, 3)
            self._coverage.stop()

    def reach(self) -> dict[str, Any]:
        """Return the recorded data in the form of a ``Reach``."""
        data = self._coverage.get_data()
        numbers = {test: number for number, test in enumerate(self.seconds)}
        lines = {
            str(Path(file).relative_to(ROOT)): {
                str(line): sorted(numbers[test] for test in {*tests} - {""})
                for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in sorted(data.measured_files())
        }
        return {"tests": [*numbers], "seconds": [*self.seconds.values()], "lines": lines}


def main() -> int:
    """Record the tests named on the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.reach", description=__doc__)
    parser.add_argument("file", type=Path, help="where to write what is learned")
    parser.add_argument("tests", nargs="+", help="what to run")
    options = parser.parse_args()
    learner = _Learner()
    status = pytest.main(["-q", "-p", "no:cacheprovider", *options.tests], plugins=[learner])
    options.file.write_text(json.dumps(learner.reach()))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
