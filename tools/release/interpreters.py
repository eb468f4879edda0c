"""Find the interpreters on this machine with which a release is checked."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MINORS: Final = (11, 12, 13, 14)
"""Minor versions of Python 3 that the distributions support."""
PROBE_SECONDS_MAX: Final = 20


def find_interpreters() -> dict[int, Path]:
    """Return one interpreter that can create environments for each minor version that is found."""
    found = {}
    for minor in MINORS:
        for path in _candidates(minor):
            if _works(path, minor):
                found[minor] = path
                break
    return found


def _candidates(minor: int) -> Iterator[Path]:
    """Yield possible paths of an interpreter: pyenv's versions, the newest first, then the PATH."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    patches = (root / "versions").glob(f"3.{minor}.*/bin/python")
    yield from sorted(patches, key=_patch, reverse=True)
    if path := shutil.which(f"python3.{minor}"):
        yield Path(path)


def _patch(path: Path) -> int:
    """Return the patch number of a version of pyenv; -1 for a pre-release."""
    number = path.parent.parent.name.rpartition(".")[2]
    return int(number) if number.isdecimal() else -1


def _works(path: Path, minor: int) -> bool:
    """Return whether a path starts a Python of a minor version with venv; a shim may be broken."""
    code = f"import ensurepip, venv, sys; sys.exit(sys.version_info[:2] != (3, {minor}))"
    command = [str(path), "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=PROBE_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
