"""Resolve the dependencies of the three distributions to exact versions with hashes.

One file per environment, for every platform and for Python 3.11 and later (`--universal`). No file
names an index: where packages come from is the business of whoever installs them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

PYTHON_FLOOR: Final = "3.11"
OWN_DISTRIBUTIONS: Final = ("taskraft", "taskraft-server", "taskraft-pipeline")
HEADER: Final = "# Written by `make lock` from the pyproject.toml files; do not edit.\n"

ENVIRONMENTS: Final[dict[str, tuple[str, ...]]] = {
    "dev": ("pyproject.toml", "--group", "dev"),
    # What the image holds: chosen from the tested versions.
    "service": ("pyproject.toml", "--constraint", "constraints/dev.txt"),
    # Installed over `dev` where there is a Java, so it may not contradict it.
    "pipeline": ("pipeline/pyproject.toml", "--constraint", "constraints/dev.txt"),
    # The back ends that build the image's wheels.
    "build": ("--group", "build", "--constraint", "constraints/dev.txt"),
    "proto": ("--group", "proto"),
}
"""Arguments of the resolver by name of the file; the order matters."""


def lock(name: str, arguments: tuple[str, ...]) -> None:
    """Write ``constraints/<name>.txt``, keeping versions that still fit."""
    target = Path("constraints") / f"{name}.txt"
    options = ["--universal", "--python-version", PYTHON_FLOOR, "--generate-hashes"]
    options += ["--no-emit-index-url", "--no-emit-find-links", "--no-header", "--no-annotate"]
    for own in OWN_DISTRIBUTIONS:
        options += ["--no-emit-package", own]
    options += [*arguments, "--quiet", "--output-file", str(target)]
    resolver = [sys.executable, "-m", "uv", "pip", "compile"]
    subprocess.run([*resolver, *options], check=True, stdout=subprocess.DEVNULL)
    locked = target.read_text()
    if "://" in locked:
        raise SystemExit(f"{target} names an address")
    target.write_text(HEADER + locked.removeprefix(HEADER))


def main() -> None:
    """Write every file below ``constraints/``."""
    for name, arguments in ENVIRONMENTS.items():
        lock(name, arguments)


if __name__ == "__main__":
    main()
