"""Create the virtual environments and install exactly the locked versions into them.

There are three levels: ``run`` is what a node, the client, the command line and the console need;
``demo`` adds Spark; ``all`` is for development and tests. A higher level contains the lower ones.

This program uses only the standard library. It stores a digest of all inputs in the environment, so
that a check of an up-to-date environment takes milliseconds.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PYTHON_FLOOR = (3, 11)
PACKAGE = re.compile(r"^[\w.-]+==", re.MULTILINE)
"""Begin of a line of a locked package."""
JAVA_FLOOR = 17
"""Minimum Java version of PySpark 4."""


@dataclass(frozen=True)
class Level:
    """What an environment contains: files of ``constraints/``, and folders of distributions."""

    locked: tuple[str, ...]
    distributions: tuple[str, ...]


SPARK = "pipeline"
"""File of ``constraints/`` with PySpark, which is left out without Java."""
LEVELS = {
    "run": Level(("build", "service", "console"), (".", "clients/python", "console")),
    "demo": Level(
        ("build", "service", "console", SPARK), (".", "clients/python", "console", "pipeline")
    ),
    "all": Level(("dev", SPARK), (".", "clients/python", "console", "pipeline")),
}
JAVA_HINT = (
    f"Java {JAVA_FLOOR} or later was not found, so the Spark part is skipped. To use it, install"
    " Java (Debian, Ubuntu: apt install openjdk-17-jre-headless) and run make again."
)


def find_python() -> str:
    """Return a Python that is new enough, preferably this one; exit if there is none."""
    if sys.version_info >= PYTHON_FLOOR:
        return sys.executable
    for name in ("python3.13", "python3.12", "python3.11", "python3.14"):
        path = shutil.which(name)
        # A version manager may have put a broken shim on the PATH.
        command = [path or name, "-c", ""]
        if path and subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return path
    sys.exit("taskraft needs Python 3.11 or later; found only " + sys.version.split()[0])


def java_version() -> int:
    """Return the major version of the Java that Spark would start; 0 if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return 0
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', answer)
    return int(found.group(1)) if found else 0


def digest(paths: list[Path]) -> str:
    """Return a digest of the content of ``paths``."""
    content = hashlib.sha256()
    for path in paths:
        content.update(path.read_bytes())
    return content.hexdigest()


def is_current(stamp: Path, value: str) -> bool:
    """Return whether the step that wrote ``stamp`` ran with the same inputs."""
    return stamp.exists() and stamp.read_text() == value


def install_with(environment: Path, *arguments: str) -> None:
    """Install with uv if it is on the PATH and succeeds, otherwise with pip; exit if pip fails."""
    # Build isolation is off, because it would fetch unlocked build back ends.
    options = ["install", "--quiet", "--no-build-isolation", *arguments]
    python = str(environment / "bin" / "python")
    if uv := shutil.which("uv"):
        # uv can lack the settings of pip, such as its index.
        command = [uv, "pip", *options, "--python", python]
        if subprocess.run(command, check=False).returncode == 0:
            return
    command = [python, "-m", "pip", "--disable-pip-version-check", *options]
    done = subprocess.run(command, check=False)
    if done.returncode != 0:
        sys.exit(f"{environment}: pip failed with status {done.returncode}")


def create(environment: Path) -> None:
    """Create ``environment`` if it is missing, or if its Python no longer exists."""
    if (environment / "bin" / "python").exists():
        return
    command = [find_python(), "-m", "venv", "--clear", str(environment)]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit("cannot create a virtual environment; on Debian run: apt install python3-venv")


def install(environment: Path, constraints: str) -> None:
    """Install the versions of one file of ``constraints/`` into ``environment``."""
    create(environment)
    locked = Path("constraints") / f"{constraints}.txt"
    stamp, value = environment / f".{constraints}", digest([locked])
    if is_current(stamp, value):
        return
    count = len(PACKAGE.findall(locked.read_text()))
    print(f"installing {count} packages of {locked} into {environment} ...", flush=True)
    began = time.monotonic()
    install_with(environment, "--require-hashes", "--requirement", str(locked))
    seconds = time.monotonic() - began
    print(f"... took {seconds:.0f} s; {environment} has {mebibytes(environment)} MiB", flush=True)
    stamp.write_text(value)


def mebibytes(folder: Path) -> int:
    """Return the size of all files in a folder, in MiB."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) >> 20


def link_distributions(environment: Path, distributions: tuple[str, ...]) -> None:
    """Install distributions of this repository in editable mode."""
    projects = [Path(folder) / "pyproject.toml" for folder in distributions]
    stamp = environment / ".editable"
    value = f"{digest(projects)} {Path.cwd()} {' '.join(distributions)}"
    if is_current(stamp, value):
        return
    editable = [argument for folder in distributions for argument in ("--editable", folder)]
    install_with(environment, "--no-deps", *editable)
    stamp.write_text(value)


def is_complete(environment: Path) -> bool:
    """Return whether the environment has ever got everything for development."""
    return (environment / ".dev").exists()


def set_up(environment: Path, name: str) -> None:
    """Install what a level needs, or everything if the environment had everything before."""
    level = LEVELS["all" if is_complete(environment) else name]
    for locked in level.locked:
        if locked != SPARK:
            install(environment, locked)
    link_distributions(environment, level.distributions)
    if SPARK in level.locked:
        value = digest([Path("constraints") / f"{SPARK}.txt"])
        if not is_current(environment / f".{SPARK}", value) and java_version() < JAVA_FLOOR:
            print(JAVA_HINT, flush=True)
            return
        install(environment, SPARK)


def main() -> None:
    """Update the environment that is named on the command line."""
    parser = argparse.ArgumentParser(description="Install the locked versions.")
    parser.add_argument("environment", type=Path)
    parser.add_argument(
        "--only",
        choices=("proto", "peers", "brokers", "docs", "sbom", "native", "release"),
        help="one group instead of a level; those of site and edge go on top of dev",
    )
    parser.add_argument("--level", choices=tuple(LEVELS), default="all", help="what to install")
    arguments = parser.parse_args()
    arguments.environment.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{arguments.environment}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # concurrent runs of make install one after the other
        if arguments.only:
            install(arguments.environment, arguments.only)
        else:
            set_up(arguments.environment, arguments.level)


if __name__ == "__main__":
    main()
