"""Run the two stages of the tests: ``python -m tests.gate [pytest arguments]``.

Stage 1 runs on all cores, and its tests are never repeated. Then stage 2 runs. A test of stage 2
that failed runs once more, alone, after all others. A test that passes then is unstable: the run
passes with at most three such tests and names them at its end. ``tests/UNSTABLE.md`` lists the
unstable tests of the last run.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.gate.outcomes import Outcome, read_outcomes
from tests.gate.verdict import judge, summary

TOGETHER = 3
"""Default number of processes of stage 2. A test waits more than it computes, so this number may
exceed the number of cores. On two cores, five processes took 734 s and three 785 s, and nodes then
waited so long for a core that one test saw an election."""
AGAIN_MAX = 20
"""Maximum number of failed tests that run again; a run with more failures is wrong anyway."""
MEMORY = Path("/dev/shm")
"""File system in memory for the folders of tests, whose nodes sync after each request."""
MEMORY_BYTES_MIN = 6 << 30
"""Minimum free size of ``MEMORY``. A folder of a test that passed is deleted with the test."""
BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")
"""All tests of a file run in one process, because they share nodes."""
KEEP_FAILED = ("-o", "tmp_path_retention_policy=failed")
"""Deletes the folder of a test that passed."""
ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
"""Exit codes of a stage that ran to its end."""


class RunEnded(Exception):
    """A stage ended early, for example by Ctrl-C or by an error in the command line."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class StagedRun:
    """Runs pytest once per stage, each time in a process of its own."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._arguments = arguments
        self._folder = folder
        self.stages: list[tuple[str, list[Outcome], float]] = []
        """Name, outcomes and duration in seconds of each stage so far."""

    def run(self, name: str, *options: str) -> list[Outcome]:
        """Run a stage; return its outcomes.

        Raises:
            RunEnded: the stage did not run to its end.
        """
        print(f"--- {name}", flush=True)
        file = self._folder / f"{len(self.stages)}.jsonl"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--outcomes",
            str(file),
            *KEEP_FAILED,
            *options,
        ]
        began = time.monotonic()
        environment = {**os.environ, "TMPDIR": str(self._folder)}
        done = subprocess.run([*command, *self._arguments], env=environment, check=False)
        status = done.returncode
        if status not in ENDED:
            raise RunEnded(status)
        outcomes = read_outcomes(file)
        if status == pytest.ExitCode.TESTS_FAILED and not any(each.failed for each in outcomes):
            raise RunEnded(status)  # a file that cannot be imported has no tests
        self.stages.append((name, outcomes, time.monotonic() - began))
        return outcomes


def folder_of_tests() -> Path | None:
    """Return the folder for temporary files of tests: in memory if there is room, or the default.

    A sync on a disk takes milliseconds in which a test waits. Tests inject syncs that fail, hang
    or are lost, so these tests need no disk. ``make unstable`` uses the disk.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return None
    found = os.statvfs(MEMORY)
    is_usable = found.f_bavail * found.f_frsize >= MEMORY_BYTES_MIN
    return MEMORY if is_usable and not found.f_flag & os.ST_NOEXEC else None


def run_stages(arguments: list[str], stages: tuple[int, ...], cores: int, together: int) -> int:
    """Run the stages and print the verdict; return the exit status."""
    shutil.rmtree(Path("var/tests"), ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="taskraft-", dir=folder_of_tests()) as folder:
        run = StagedRun(arguments, Path(folder))
        try:
            first: list[Outcome] = []
            second: list[Outcome] = []
            if 1 in stages:
                first = run.run("stage 1", "--stage", "1", "-n", str(cores), *BY_FILE)
            if 2 in stages:
                second = run.run("stage 2", "--stage", "2", "-n", str(together), *BY_FILE)
            late = [each.test for each in second if each.failed]
            again: list[Outcome] = []
            if late:
                alone = StagedRun([], Path(folder, "again"))
                Path(folder, "again").mkdir()
                again = alone.run("again, alone", "-n", "1", *late[:AGAIN_MAX])
        except RunEnded as ended:
            return ended.status
    if not (first or second):
        print("no test was selected")
        return pytest.ExitCode.NO_TESTS_COLLECTED
    verdict = judge(first, second, again)
    print("\n".join(["", *summary(verdict, run.stages)]), flush=True)
    return 0 if verdict.passed else 1


def main() -> int:
    """Run the stages with the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description=__doc__)
    parser.add_argument("--together", type=int, default=TOGETHER, help="processes of stage 2")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="processes of stage 1")
    parser.add_argument("--stage", type=int, choices=(1, 2), help="run this stage alone")
    options, arguments = parser.parse_known_args()
    stages = (1, 2) if options.stage is None else (options.stage,)
    return run_stages(arguments, stages, options.cores, options.together)


if __name__ == "__main__":
    sys.exit(main())
