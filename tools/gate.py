"""Run ``.ci/run`` on a fresh clone of the committed HEAD: ``make gate``.

A checkout has files that a commit lacks, and an environment that a new machine lacks. The clone has
neither. The folder `shared` beside this checkout is copied beside the clone, because some tests use
it if it is there. What cargo compiles stays in ``var/gate-cargo/<tree>`` of this checkout, for the
next run with the same sources in ``edge``. This program uses only the standard library.

A run that passes leaves the file ``var/gate/<commit>`` with the closing lines of the run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

COMPILED: Final = Path("var/gate-cargo")
"""Folder of the checkout with a folder of cargo for each version of the sources in ``edge``. Cargo
compares times of files only, so two versions must not share a folder."""
COMPILED_MAX: Final = 3
"""Number of the folders of cargo that are kept, the newest ones."""
PROGRESS_SECONDS: Final = 60
SHOWN_CHARS: Final = 100
CLOSING: Final = re.compile(
    r"^(UNSTABLE: .*|stage \d: .*|\d+ passed, \d+ failed, \d+ skipped)$", re.MULTILINE
)
"""Lines of a run that passed which its stamp keeps."""
FAILURES: Final = re.compile(r"^((?:WRONG|UNSTABLE): .*|make: .*Error.*)$", re.MULTILINE)
"""Lines of a run that failed which are printed at its end."""


def git(folder: Path, *arguments: str) -> str:
    """Return the output of git in a folder."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def clean_environment(environment: Mapping[str, str], checkout: Path) -> dict[str, str]:
    """Return the variables without paths of the checkout, and without an active environment."""
    clean = {}
    for name, value in environment.items():
        parts = [
            part for part in value.split(os.pathsep) if checkout not in (Path(part) / "x").parents
        ]
        if name != "VIRTUAL_ENV" and parts:
            clean[name] = os.pathsep.join(parts)
    return {**clean, "CI": "true"}


def cargo_variables(checkout: Path, tree: str) -> dict[str, str]:
    """Make the folder of cargo for a version of ``edge``; return the variables that name it.

    Older folders than the newest ``COMPILED_MAX`` are deleted.

    Args:
        checkout: the repository.
        tree: hash of git of the sources in ``edge``.
    """
    folder = checkout / COMPILED / tree
    folder.mkdir(parents=True, exist_ok=True)
    folder.touch()
    by_age = sorted(folder.parent.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
    for old in by_age[COMPILED_MAX:]:
        shutil.rmtree(old, ignore_errors=True)
    # Incremental compilation would keep files of each clone, which no other clone can use.
    return {"CARGO_TARGET_DIR": str(folder), "CARGO_INCREMENTAL": "0"}


def clone(checkout: Path, folder: Path, *, commit: str = "HEAD", with_shared: bool = True) -> Path:
    """Clone a commit into a folder, by default with `shared` beside the clone; return the clone."""
    target = folder / "main"
    git(checkout, "clone", "--quiet", "--no-local", str(checkout), str(target))
    git(target, "checkout", "--quiet", "--detach", git(checkout, "rev-parse", commit))
    shared = checkout.parent / "shared"
    if with_shared and shared.is_dir():
        shutil.copytree(shared, folder / "shared", symlinks=True)
    return target


def run_with_progress(target: Path, environment: Mapping[str, str], output: Path) -> int:
    """Run the checks and tests of a clone; print a line per minute; return the exit status."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            [str(target / ".ci" / "run")],
            cwd=target,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    minutes = 0
    while True:
        try:
            return process.wait(PROGRESS_SECONDS)
        except subprocess.TimeoutExpired:
            minutes += 1
            lines = output.read_text(errors="replace").strip().splitlines() or [""]
            print(f"{minutes} min: {lines[-1][:SHOWN_CHARS]}", flush=True)


def main() -> int:
    """Run the gate; return 0 if the commit passes."""
    checkout = Path(git(Path(), "rev-parse", "--show-toplevel"))
    commit = git(checkout, "rev-parse", "HEAD")
    folder = Path(tempfile.mkdtemp(prefix="taskraft-gate-"))
    output = folder / "output.log"
    print(f"gate of {commit[:10]}; output: {output}", flush=True)
    if git(checkout, "status", "--porcelain"):
        print("note: the clone lacks uncommitted changes", flush=True)
    began = time.monotonic()
    target = clone(checkout, folder)
    environment = clean_environment(os.environ, checkout)
    if (target / "edge").is_dir():
        environment |= cargo_variables(checkout, git(target, "rev-parse", "HEAD:edge"))
    status = run_with_progress(target, environment, output)
    seconds = time.monotonic() - began
    text = output.read_text(errors="replace")
    if status:
        print("\n".join(FAILURES.findall(text)))
        print(f"RED: status {status} after {seconds:.0f} s; output and clone: {folder}")
        return 1
    stamp = checkout / "var" / "gate" / commit
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text("\n".join([f"{seconds:.0f} s", *CLOSING.findall(text), ""]))
    print(stamp.read_text() + f"green: {stamp.relative_to(checkout)}")
    for place in (target, folder / "shared"):
        shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
