"""Run mutants in processes that share a copy of the code, up to the first failing test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeAlias

from tests.mutants.mutant import SUITES, Changed

ROOT: Final = Path(__file__).parents[2]

COPIED: Final = (
    "replication",
    "service",
    "tests",
    "tools",
    "bench",
    "demo",
    "clients",
    "docs",
    "proto",
    "pyproject.toml",
)
"""Files and folders of the copy; the tests import the tools, the benches and the demo."""

Stage: TypeAlias = Callable[[Changed], Sequence[Sequence[str]]]
"""Returns the next groups of tests for a mutant, perhaps none; a group is collected together."""


IMPORT_ROOTS: Final = ("service", "replication", "clients/python/src")
"""Folders of the repository that hold importable packages."""

TEST_SECONDS_MAX: Final = 60
"""Time limit of one test in seconds."""
ACCIDENTS: Final = ("AttributeError", "ImportError", "NameError", "SyntaxError", "TypeError")
"""Exceptions which show that a mutant is not a working program."""
NO_TEST: Final = "pytest itself"
"""Killer of a mutant for which pytest could run no test; see ``worker``."""


@dataclass(slots=True, frozen=True)
class Answer:
    """The result of the tests of a mutant; ``killer`` is the failed test, or empty."""

    killer: str
    reason: str
    seconds: float


@dataclass(slots=True, frozen=True)
class Verdict:
    """The final result of a mutant."""

    mutant: Changed
    answer: Answer

    @property
    def killer(self) -> str:
        """The test that killed the mutant; empty if the mutant survived."""
        return self.answer.killer

    @property
    def is_accident(self) -> bool:
        """Whether the mutant crashed as a program, so that no test detected the broken rule."""
        return self.answer.reason.lstrip().startswith(ACCIDENTS)

    def __str__(self) -> str:
        """Return one line for the report."""
        name, seconds = self.mutant.name, self.answer.seconds
        if not self.killer:
            return f"SURVIVED {name} ({seconds:.1f} s): {self.mutant.breaks}"
        reason = " ".join(self.answer.reason.split())[:100]
        return f"killed {name} ({seconds:.1f} s) by {self.killer}: {reason}"


class Worker:
    """A process that runs the tests of one mutant after the other."""

    def __init__(self, copy: Path, test_seconds_max: int = TEST_SECONDS_MAX) -> None:
        self._copy = copy
        self._test_seconds_max = test_seconds_max
        roots = (copy, *(copy / root for root in IMPORT_ROOTS))
        paths = os.pathsep.join(str(root) for root in roots)
        self._process = subprocess.Popen(
            [sys.executable, "tests/mutants/worker.py", str(copy.parent)],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process and its children; the process removes its copy."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def attempt(self, mutant: Changed, groups: Sequence[Sequence[str]]) -> Verdict:
        """Run groups of tests on ``mutant`` in order; collecting all at once would take long."""
        module = module_name(mutant.file)
        source = mutant.changed((self._copy / mutant.file).read_text())
        answer = Answer("", "", 0)
        for tests in groups:
            before, answer = answer, self.run(tests, module, source)
            answer = replace(answer, seconds=before.seconds + answer.seconds)
            if answer.killer:
                break
        return Verdict(mutant, answer)

    def run(self, tests: Iterable[str], module: str = "", source: str = "") -> Answer:
        """Run tests in order up to the first failure, with ``source`` in place of ``module``."""
        order = {
            "arguments": [*tests],
            "module": module,
            "source": source,
            "test_seconds_max": self._test_seconds_max,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return Answer(**json.loads(self._process.stdout.readline()))


class Workshop:
    """Workers that share a copy of the code."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for each in workers:
            self._free.put(each)

    def verdicts(self, mutants: Iterable[Changed], stages: Sequence[Stage]) -> Iterator[Verdict]:
        """Yield the verdict of each mutant as soon as it is known.

        A mutant that survives one of the ``stages`` goes through the next stage.
        """
        alive = list(mutants)
        for number, stage in enumerate(stages, start=1):
            survivors: list[Changed] = []
            for verdict in self._attempt({each: stage(each) for each in alive}):
                if number == len(stages) or verdict.killer not in {"", NO_TEST}:
                    yield verdict
                else:
                    survivors.append(verdict.mutant)
            alive = survivors

    def _attempt(self, groups: Mapping[Changed, Sequence[Sequence[str]]]) -> Iterator[Verdict]:
        def attempt(mutant: Changed) -> Verdict:
            with self._worker() as worker:
                return worker.attempt(mutant, groups[mutant])

        pool = ThreadPoolExecutor(len(self._workers))
        try:
            for done in as_completed([pool.submit(attempt, each) for each in groups]):
                yield done.result()
        finally:
            # Closing a worker ends the worker with its tests.
            pool.shutdown(wait=False, cancel_futures=True)

    def unchanged(self, tests: Iterable[str]) -> Answer:
        """Run tests on the unchanged code."""
        with self._worker() as worker:
            return worker.run(tests)

    @contextmanager
    def _worker(self) -> Iterator[Worker]:
        worker = self._free.get()
        try:
            yield worker
        finally:
            self._free.put(worker)


def tests_for(mutant: Changed) -> list[str]:
    """Return the tests that should detect a mutant: those of its own module, then its suite."""
    top, _, *folders, name = Path(mutant.file).parts
    own = Path("tests", top, *folders, f"test_{name}")
    return [*([str(own)] if (ROOT / own).exists() else []), *SUITES[mutant.suite]]


@contextmanager
def open_workshop(count: int, test_seconds_max: int = TEST_SECONDS_MAX) -> Iterator[Workshop]:
    """Copy the code and start workers; remove the copy at the end, also after an exception."""
    folder = Path(tempfile.mkdtemp(prefix="taskraft-mutants-"))
    workers: list[Worker] = []
    try:
        copy = copy_code(folder / "copy")
        workers += [Worker(copy, test_seconds_max) for _ in range(count)]
        yield Workshop(workers)
    finally:
        for worker in workers:
            worker.close()
        shutil.rmtree(folder, ignore_errors=True)


def module_name(file: str) -> str:
    """Return the import name of a file, given by its path in the repository."""
    for root in IMPORT_ROOTS:
        file = file.removeprefix(f"{root}/")
    return file.removesuffix(".py").replace("/", ".")


def copy_code(copy: Path) -> Path:
    """Copy the code to a folder of its own."""
    copy.mkdir(parents=True)
    junk = shutil.ignore_patterns("*.pyc", ".venv", "node_modules", "var")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=junk)
        else:
            shutil.copy(ROOT / name, copy / name)
    shared = ROOT.parent / "shared"
    if shared.exists():
        (copy.parent / "shared").symlink_to(shared.resolve())
    return copy
