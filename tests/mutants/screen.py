"""Try thousands of generated mutants of pure code on tests that are already loaded.

Run ``python -m tests.mutants.screen service/taskraft_service/queue --sample 500``. The tests are
collected once, and each runs once to record which functions it calls. Then each mutant gets a fork
of this process, in which the code of one function is replaced. The tests that call this function
run there, the fastest first, up to the first failure. Nothing is imported or collected again, so
most mutants are killed within a tenth of a second. Tests with random input come last, and are left
out with ``--brief``. ``--table queue`` uses the mutants of that suite of the table and stores their
killers.

Use it for code without threads and servers, which do not survive a fork. It does not change values
that were computed during an import: check the survivors with ``python -m tests.mutants``.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, TypeAlias

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.generated import generate
from tests.mutants.killers import read_killers, write_killers
from tests.mutants.mutant import Changed, read_table
from tests.mutants.trial import ROOT

Place: TypeAlias = tuple[str, str, int]
"""A function: its file, its qualified name and its first line."""

CPU_SECONDS_MAX: Final = 20
"""CPU time limit of one test in seconds."""

MEMORY_BYTES_MAX: Final = 4 << 30


@dataclass(slots=True)
class Course:
    """A collected test, its duration in seconds, and the functions that it calls."""

    item: pytest.Item
    seconds: float
    called: frozenset[Place]
    is_drawn: bool
    """Whether the test has random input; such a test can call any function."""


class Screen:
    """A pytest plugin that runs the tests on mutants instead of on the original code."""

    def __init__(self, mutants: Sequence[Changed], workers: int, is_brief: bool) -> None:
        self._mutants = mutants
        self._texts = {file: (ROOT / file).read_text() for file in {each.file for each in mutants}}
        self._workers = workers
        self._is_brief = is_brief
        self.survivors: list[Changed] = []
        self.killers: dict[str, str] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record all tests, then try the mutants; pytest itself runs no test."""
        courses = [_learned(item) for item in session.items]
        if self._is_brief:
            courses = [course for course in courses if not course.is_drawn]
        courses.sort(key=lambda course: (course.is_drawn, course.seconds))
        functions = _functions()
        trials: dict[int, tuple[Changed, int]] = {}
        for mutant in self._mutants:
            if len(trials) >= self._workers:
                self._await_one(trials)
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                _end_with(writer, _tried(mutant, self._texts[mutant.file], courses, functions))
            os.close(writer)
            trials[child] = (mutant, reader)
        while trials:
            self._await_one(trials)
        return True

    def _await_one(self, trials: dict[int, tuple[Changed, int]]) -> None:
        child, status = os.wait()
        mutant, reader = trials.pop(child)
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        code = os.waitstatus_to_exitcode(status)
        notes = [json.loads(line) for line in said.splitlines()]
        if code < 0:
            notes.append({"killer": "", "reason": f"signal {-code}: it hangs or takes too much"})
        for note in notes:
            self.killers[mutant.name] = note["killer"]
            print(f"killed {mutant.name} by {note['killer']}: {note['reason']}", flush=True)
        if not notes:
            self.survivors.append(mutant)
            word = "SURVIVED" if code == 0 else "COULD NOT BE TRIED"
            print(f"{word} {mutant.name}: {mutant.breaks}", flush=True)


def _learned(item: pytest.Item) -> Course:
    """Run a test on the unchanged code; return its duration and the functions that it calls."""
    function = getattr(item, "function", None)
    if hasattr(function, "hypothesis") or getattr(item, "name", "") == "runTest":
        return Course(item, 0, frozenset(), is_drawn=True)
    called: set[Place] = set()
    root = str(ROOT)

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root):
            called.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    begun = time.process_time()
    sys.setprofile(note)
    try:
        reports = runtestprotocol(item, nextitem=None, log=False)
    finally:
        sys.setprofile(None)
    failed = [str(report.longrepr) for report in reports if report.failed]
    assert not failed, f"{item.nodeid} fails without any mutant: {failed[0]}"
    return Course(item, time.process_time() - begun, frozenset(called), is_drawn=False)


def _functions() -> Mapping[Place, list[FunctionType]]:
    """Return all functions of our code that exist in this process."""
    found: dict[Place, list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            code = each.__code__
            place = code.co_filename, code.co_qualname, code.co_firstlineno
            found.setdefault(place, []).append(each)
    return found


def _end_with(writer: int, notes: Iterator[Mapping[str, str]]) -> None:
    """Write the result of a fork to its pipe, and end the fork."""
    status = 1
    try:
        with os.fdopen(writer, "w") as pipe:
            for note in notes:
                pipe.write(json.dumps(note) + "\n")
        status = 0
    except BaseException:  # noqa: BLE001 - the fork must end here after any exception
        traceback.print_exc()
    finally:
        os._exit(status)


def _tried(
    mutant: Changed,
    text: str,
    courses: Iterable[Course],
    functions: Mapping[Place, list[FunctionType]],
) -> Iterator[Mapping[str, str]]:
    """Yield the first failure on a mutant, if any; runs in the fork."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    code = _changed_code(text, mutant)
    place = code.co_filename, code.co_qualname, code.co_firstlineno
    for function in functions.get(place, ()):
        function.__code__ = code
    for course in courses:
        if not course.is_drawn and place not in course.called:
            continue
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_MAX)
        for report in runtestprotocol(course.item, nextitem=None, log=False):
            if report.failed:
                crash: Any = getattr(report.longrepr, "reprcrash", None)
                reason = str(report.longrepr) if crash is None else crash.message
                yield {"killer": course.item.nodeid, "reason": " ".join(reason.split())[:120]}
                return


def _changed_code(text: str, mutant: Changed) -> CodeType:
    """Return the code of the outermost function that a mutant changes."""
    changed = mutant.changed(text)
    pairs = zip(text.splitlines(), changed.splitlines(), strict=False)
    first = next(number for number, (old, new) in enumerate(pairs, start=1) if old != new)
    function = next(
        each
        for each in _outermost(ast.parse(text))
        if each.lineno <= first <= (each.end_lineno or 0)
    )
    line = min(each.lineno for each in (function, *function.decorator_list))
    file = str(ROOT / mutant.file)
    module = compile(changed, file, "exec", dont_inherit=True)
    return next(
        code
        for code in _codes(module)
        if (code.co_name, code.co_firstlineno) == (function.name, line)
    )


def _outermost(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        else:
            yield from _outermost(child)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def main() -> int:
    """Screen the files named on the command line; return the exit status."""
    options = _options()
    mutants: Sequence[Changed] = generate(ROOT, options.paths)
    if options.table:
        mutants = [each for each in read_table() if each.suite == options.table]
    if options.only:
        wanted = set(options.only.split(","))
        mutants = [each for each in mutants if each.name in wanted]
    if options.sample:
        mutants = Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    begun = time.monotonic()
    screen = Screen(mutants, options.workers, options.brief)
    words = ["-q", "-p", "no:cacheprovider", "--tb=short", *options.tests]
    status = pytest.main(words, plugins=[screen])
    if status:
        return int(status)
    if options.table:
        write_killers({**read_killers(), **screen.killers})
    alive, seconds = len(screen.survivors), time.monotonic() - begun
    print(f"{len(mutants)} mutants, {len(mutants) - alive} killed, {seconds:.0f} s")
    return 1 if alive else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.screen", description=__doc__)
    parser.add_argument("paths", nargs="*", help="files and folders of the code")
    parser.add_argument("--table", default="", help="instead: the mutants of a suite in the table")
    parser.add_argument(
        "--tests", nargs="+", default=["tests/service/queue"], help="what should notice"
    )
    parser.add_argument("--only", default="", help="names of mutants, joined by commas")
    parser.add_argument("--brief", action="store_true", help="leave out tests that draw")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sample", type=int, default=0, help="how many, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="which of them are drawn")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
