"""Try a mutant: run its tests on a copy of the code until one fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.mutant import SUITES, Mutant

ROOT: Final = Path(__file__).parents[2]

COPIED: Final = ("replication", "service", "tests", "clients", "docs", "pyproject.toml")

SECONDS_MAX: Final = 240
"""A mutant that takes longer hangs; that is noticed, too."""

SEEDS: Final = "not nobody_has_tried and not faults_strike and not really_used"
"""Of the simulation the fixed seeds are enough; fresh ones would make the verdict a matter of
luck."""

_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)(?: - (.*))?", re.MULTILINE)


class Verdict:
    """What became of a mutant; ``killer`` is the test that failed, None if none did."""

    def __init__(self, mutant: Mutant, killer: str | None, reason: str, seconds: float) -> None:
        self.mutant = mutant
        self.killer = killer
        self.reason = reason
        self.seconds = seconds

    def __str__(self) -> str:
        """Return a line for people."""
        name, seconds = self.mutant.name, self.seconds
        if self.killer is None:
            return f"SURVIVED {name} ({seconds:.0f} s): {self.mutant.breaks}"
        return f"killed {name} ({seconds:.0f} s) by {self.killer}: {self.reason[:100]}"


class Bench:
    """A copy of the code in which one mutant after the other is tried."""

    def __init__(self, tree: Path) -> None:
        self._tree = copy_code(tree)
        paths = os.pathsep.join([str(tree), str(tree / "clients/python/src")])
        self._pytest = subprocess.Popen(
            [sys.executable, "tests/mutants/warm.py"],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process that runs the tests."""
        assert self._pytest.stdin is not None
        assert self._pytest.stdout is not None
        self._pytest.stdin.close()
        self._pytest.stdout.close()
        self._pytest.wait()

    def attempt(self, mutant: Mutant, known_killer: str = "") -> Verdict:
        """Apply ``mutant`` and run its tests.

        ``known_killer`` is the test that killed it the last time; it is tried first.
        """
        original = (self._tree / mutant.file).read_text()
        mutant.apply(self._tree)
        begun = time.monotonic()
        output = self._run([known_killer]) if known_killer else None
        if output is None:
            output = self._run(SUITES[mutant.suite])
        seconds = time.monotonic() - begun
        (self._tree / mutant.file).write_text(original)
        if output is None:
            return Verdict(mutant, None, "", seconds)
        failed = _FAILED.search(output)
        if failed is None:
            return Verdict(mutant, "pytest itself", output.strip()[-300:], seconds)
        return Verdict(mutant, failed[1], failed[2] or "", seconds)

    def _run(self, tests: Sequence[str]) -> str | None:
        """Run tests in order up to the first failure; return their output, None if none failed."""
        words = ["-q", "-x", "-p", "no:cacheprovider", "--tb=line", "-k", SEEDS, *tests]
        assert self._pytest.stdin is not None
        assert self._pytest.stdout is not None
        self._pytest.stdin.write(json.dumps([words, SECONDS_MAX]) + "\n")
        self._pytest.stdin.flush()
        status = int(self._pytest.stdout.readline())
        if status == 0:
            return None
        if status == -signal.SIGALRM:
            return f"FAILED the-limit-of-{SECONDS_MAX}-s - it hangs"
        return (self._tree / "output.txt").read_text()


def copy_code(tree: Path) -> Path:
    """Copy the code to a folder of its own."""
    tree.mkdir(parents=True)
    junk = shutil.ignore_patterns("__pycache__", "*.pyc", ".venv", "node_modules", "var")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=junk)
        else:
            shutil.copy(ROOT / name, tree / name)
    shared = ROOT.parent / "shared"
    if shared.exists() and not (tree.parent / "shared").exists():
        (tree.parent / "shared").symlink_to(shared.resolve())
    return tree
