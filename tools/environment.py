"""Create the virtual environments and install exactly the locked versions into them.

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
from pathlib import Path

PYTHON_FLOOR = (3, 11)
JAVA_FLOOR = 17
"""Minimum Java version of PySpark 4."""

DISTRIBUTIONS = (".", "clients/python", "pipeline", "console")
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


def pip(environment: Path, *arguments: str) -> None:
    """Run pip of ``environment``; exit if it fails."""
    command = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    done = subprocess.run([*command, *arguments], check=False)
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
    print(f"installing {locked} into {environment}", flush=True)
    # Build isolation is off, because it would fetch unlocked build back ends.
    options = ["--quiet", "--no-build-isolation", "--require-hashes"]
    pip(environment, "install", *options, "--requirement", str(locked))
    stamp.write_text(value)


def link_distributions(environment: Path) -> None:
    """Install this repository's distributions in editable mode."""
    projects = [Path(folder) / "pyproject.toml" for folder in DISTRIBUTIONS]
    stamp, value = environment / ".editable", digest(projects) + str(Path.cwd())
    if is_current(stamp, value):
        return
    editable = [argument for folder in DISTRIBUTIONS for argument in ("-e", folder)]
    pip(environment, "install", "--quiet", "--no-build-isolation", "--no-deps", *editable)
    stamp.write_text(value)


def set_up(environment: Path) -> None:
    """Install everything for development, tests and the demo; Spark only if Java is installed."""
    install(environment, "dev")
    link_distributions(environment)
    locked = Path("constraints/pipeline.txt")
    if not is_current(environment / ".pipeline", digest([locked])) and java_version() < JAVA_FLOOR:
        print(JAVA_HINT, flush=True)
        return
    install(environment, "pipeline")


def main() -> None:
    """Update the environment that is named on the command line."""
    parser = argparse.ArgumentParser(description="Install the locked versions.")
    parser.add_argument("environment", type=Path)
    parser.add_argument(
        "--only",
        choices=("proto", "peers", "docs", "sbom", "native"),
        help="code generator, compared workers, or (on top of dev) tools of site, image or edge",
    )
    arguments = parser.parse_args()
    arguments.environment.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{arguments.environment}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # concurrent runs of make install one after the other
        if arguments.only:
            install(arguments.environment, arguments.only)
        else:
            set_up(arguments.environment)


if __name__ == "__main__":
    main()
