"""Resolve the dependencies of the four distributions to exact versions with hashes.

There is one file per environment, for every platform and for Python 3.11 and later (`--universal`).
No file names a package index, because each installation chooses its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

PYTHON_FLOOR: Final = "3.11"
OWN_DISTRIBUTIONS: Final = ("taskraft", "taskraft-server", "taskraft-pipeline", "taskraft-console")
HEADER: Final = "# Written by `make lock` from the pyproject.toml files; do not edit.\n"

ENVIRONMENTS: Final[dict[str, tuple[str, ...]]] = {
    "dev": ("pyproject.toml", "--group", "dev"),
    # Content of the image, chosen from the tested versions.
    "service": (
        *("pyproject.toml", "--extra", "age", "--extra", "otel"),
        *("--constraint", "constraints/dev.txt"),
    ),
    # Installed on top of `dev` if Java is there, so it must be compatible.
    "pipeline": ("pipeline/pyproject.toml", "--constraint", "constraints/dev.txt"),
    # Dependencies of the client alone, for its bill of materials.
    "client": ("clients/python/pyproject.toml", "--constraint", "constraints/dev.txt"),
    # Installed on top of `service` by `make dev`.
    "console": ("console/pyproject.toml", "--constraint", "constraints/dev.txt"),
    # Installed on top of `dev` by `make docs`.
    "docs": ("--group", "docs", "--constraint", "constraints/dev.txt"),
    # Back ends that build the image's wheels.
    "build": ("--group", "build", "--constraint", "constraints/dev.txt"),
    # Installed on top of `dev` by `make native`.
    "native": ("--group", "native", "--constraint", "constraints/dev.txt"),
    "proto": ("--group", "proto"),
    "peers": ("--group", "peers"),
    "brokers": ("--group", "brokers"),
    "sbom": ("--group", "sbom"),
    "release": (
        *("--group", "release", "--constraint", "constraints/native.txt"),
        *("--constraint", "constraints/build.txt"),
    ),
}
"""Arguments of the resolver by file name; the order matters."""


def lock(name: str, arguments: tuple[str, ...]) -> None:
    """Write ``constraints/<name>.txt``, and keep versions that still satisfy the requirements."""
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
        raise SystemExit(f"{target} contains a URL; remove index options from the requirements")
    target.write_text(HEADER + locked.removeprefix(HEADER))


def main() -> None:
    """Write all files below ``constraints/``."""
    for name, arguments in ENVIRONMENTS.items():
        lock(name, arguments)


if __name__ == "__main__":
    main()
