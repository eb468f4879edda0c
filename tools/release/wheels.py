"""Build the wheels of all distributions from a clone, reproducibly, and check their contents.

Two builds of a commit, in different folders, give files with equal bytes.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from email.parser import BytesParser
from pathlib import Path
from typing import Final

from tools.gate import git
from tools.release.neutral_paths import neutralise_paths

FOLDERS: Final[Mapping[str, str]] = {
    "taskraft": "clients/python",
    "taskraft_server": ".",
    "taskraft_console": "console",
    "taskraft_pipeline": "pipeline",
}
"""Folder of each distribution in pure Python, by its name in the names of files."""
EDGE: Final = "taskraft_edge"
EDGE_FOLDER: Final = "edge"
EDGE_PLATFORM: Final = "manylinux2014"
"""Oldest systems on which the wheel of the edge works: glibc 2.17."""
SUMS: Final = "SHA256SUMS"
BUILD_SECONDS_MAX: Final = 900


class ReleaseFailed(Exception):
    """The wheels cannot be released; the text says why."""


def run(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run a command of a build; return its output.

    Raises:
        ReleaseFailed: the command ended with another status than 0, or took too long.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise ReleaseFailed(f"{command[0]} took more than {BUILD_SECONDS_MAX} s") from None
    if done.returncode:
        raise ReleaseFailed(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(clone: Path, wheels: Path, *, with_edge: bool) -> None:
    """Build all wheels of a clone into a folder.

    Raises:
        ReleaseFailed: a build failed.
    """
    epoch = git(clone, "log", "-1", "--format=%ct")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    command += ["--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels)]
    projects = [f"./{folder}" for folder in FOLDERS.values()]
    run([*command, *projects], clone, {"SOURCE_DATE_EPOCH": epoch})
    if with_edge:
        _build_edge(clone, wheels, epoch)


def _build_edge(clone: Path, wheels: Path, epoch: str) -> None:
    """Build the wheel of the edge with the linker of Zig, which links against an old glibc.

    Raises:
        ReleaseFailed: the build failed, or the module needs newer systems than EDGE_PLATFORM.
    """
    programs = Path(sys.executable).parent
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    environment = {
        "SOURCE_DATE_EPOCH": epoch,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        # Messages of errors contain the paths of sources, which differ between machines.
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(
            [f"--remap-path-prefix={clone}=/taskraft", f"--remap-path-prefix={cargo}=/cargo"]
        ),
        "CFLAGS": f"-ffile-prefix-map={clone}=/taskraft -ffile-prefix-map={cargo}=/cargo",
    }
    command = [str(programs / "maturin"), "build", "--quiet", "--release", "--locked", "--zig"]
    command += ["--compatibility", EDGE_PLATFORM, "--out", str(wheels)]
    run([*command, "--manifest-path", f"{EDGE_FOLDER}/Cargo.toml"], clone, environment)
    (wheel,) = wheels.glob(f"{EDGE}-*.whl")
    neutralise_paths(wheel, clone)


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a folder but SUMS, by name."""
    paths = sorted(path for path in folder.iterdir() if path.name != SUMS)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def write_sums(folder: Path) -> None:
    """Write the digests of a folder in the format of sha256sum."""
    lines = [f"{digest}  {name}\n" for name, digest in digests(folder).items()]
    (folder / SUMS).write_text("".join(lines))


def problems_of(wheel: Path, licence: bytes, version: str) -> list[str]:
    """Return the faults of a wheel: no licence, no mark of types, or another version.

    Args:
        wheel: the file.
        licence: content of the file LICENSE of the repository.
        version: the version that the release has.
    """
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (place,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
        metadata = BytesParser().parsebytes(opened.read(f"{place}/METADATA"))
        own = f"{place}/licenses/LICENSE"
        problems = [] if own in names and opened.read(own) == licence else ["no LICENSE"]
    packages = {name.split("/")[0] for name in names} - {place}
    problems += [f"no {one}/py.typed" for one in packages if f"{one}/py.typed" not in names]
    if metadata["Version"] != version:
        problems.append(f"version {metadata['Version']}, not {version}")
    if not metadata["License-Expression"]:
        problems.append("no License-Expression")
    return [f"{wheel.name}: {problem}" for problem in problems]


def check_metadata(wheels: list[Path]) -> None:
    """Check the metadata as a registry does.

    Raises:
        ReleaseFailed: a registry would refuse a wheel.
    """
    command = [sys.executable, "-m", "twine", "--no-color", "check", "--strict"]
    run([*command, *map(str, wheels)], Path(), {})
