"""Find incompatible changes of the contract and of golden files: ``make breaking``.

The contract (``proto/``) may only get new fields, messages and calls, and a golden file is never
changed or removed. The comparison is with the commit of the last release, or with ``--against``.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.release.last_release import NAME, ReleaseFileInvalid, read_last_release

CONTRACT: Final = ("buf.yaml", "proto")
GOLDEN: Final = "tests/golden"


class CommitMissing(Exception):
    """The history of this clone lacks a commit."""


def breaking_changes(root: Path, commit: str) -> list[str]:
    """Return the forbidden changes of a checkout since a commit, uncommitted changes included.

    Raises:
        CommitMissing: this clone lacks the commit.
    """
    with tempfile.TemporaryDirectory(prefix="taskraft-breaking-") as name:
        before = Path(name)
        _extract(root, commit, before)
        return _contract_changes(root, before) + _golden_changes(root, before)


def _extract(root: Path, commit: str, folder: Path) -> None:
    """Write the contract and the golden files of a commit into a folder.

    Raises:
        CommitMissing: this clone lacks the commit.
    """
    git = ["git", "-C", str(root)]
    exists = [*git, "cat-file", "-e", f"{commit}^{{commit}}"]
    if subprocess.run(exists, capture_output=True, check=False).returncode:
        raise CommitMissing(
            f"this clone lacks the commit {commit}; fetch the history (git fetch --unshallow)"
        )
    archive = [*git, "archive", commit, *CONTRACT, GOLDEN]
    content = subprocess.run(archive, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as opened:
        opened.extractall(folder, filter="data")


def _contract_changes(root: Path, before: Path) -> list[str]:
    """Return the lines of buf about incompatible changes."""
    buf = str(Path(sys.executable).with_name("buf"))
    command = [buf, "breaking", "--against", str(before)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    return (lines or [f"buf ended with status {done.returncode}"]) if done.returncode else []


def _golden_changes(root: Path, before: Path) -> list[str]:
    """Return one line for each golden file that was changed or removed."""
    problems = []
    for old in sorted((before / GOLDEN).rglob("*.json")):
        name = old.relative_to(before)
        new = root / name
        if not new.exists():
            problems.append(f"{name}: the golden file was removed")
        elif new.read_bytes() != old.read_bytes():
            problems.append(f"{name}: the golden file was changed")
    return problems


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the checkout in the working directory; return the exit status."""
    parser = argparse.ArgumentParser(description="Find incompatible changes.")
    parser.add_argument("--against", default="", help="commit; default: the last release")
    commit = parser.parse_args(arguments).against
    try:
        if not commit:
            last = read_last_release(Path())
            if last is None:
                print(f"{NAME} names no release yet, so nothing is compared")
                return 0
            commit = last.commit
        problems = breaking_changes(Path(), commit)
    except (CommitMissing, ReleaseFileInvalid) as error:
        problems = [str(error)]
    for problem in problems:
        print(problem)
    if problems:
        print(f"RED: {len(problems)} problems; compatibility with {commit or NAME} is broken")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
