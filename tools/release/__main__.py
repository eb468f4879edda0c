"""Build the wheels of HEAD into var/release and check them: ``make release``.

The program clones HEAD twice and builds all wheels in both clones; the files must have equal bytes.
The wheels are checked as a registry does, and used with each interpreter that is found. With
``--version``, HEAD must be the commit of that release: each place has the version, and the
changelog has the section of the version. The exit status is 0 if all checks passed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.gate import clone, git
from tools.native_edge import download_crates
from tools.release.bills import write_bills
from tools.release.interpreters import MINORS, find_interpreters
from tools.release.readiness import release_problems
from tools.release.trial import Trial
from tools.release.versions import current_version, differing_places
from tools.release.wheels import (
    EDGE,
    ReleaseFailed,
    build,
    check_metadata,
    digests,
    problems_of,
    write_sums,
)

TARGET: Final = Path("var/release")


def build_twice(checkout: Path, commit: str, folder: Path, *, with_edge: bool) -> Path:
    """Build the wheels in two clones of a commit; return the first clone and fill TARGET.

    Raises:
        ReleaseFailed: a build failed, or the builds differ.
    """
    built = []
    for name in ("first", "second"):
        print(f"building the wheels, {name} time ...", flush=True)
        (folder / name).mkdir()
        source = clone(checkout, folder / name, commit=commit, with_shared=False)
        wheels = folder / name / "wheels"
        build(source, wheels, with_edge=with_edge)
        built.append((source, wheels))
    (source, wheels), (_, again) = built
    one, other = digests(wheels), digests(again)
    if one != other:
        differing = sorted(dict(one.items() ^ other.items()))
        raise ReleaseFailed(f"two builds differ: {', '.join(differing)}")
    shutil.rmtree(TARGET, ignore_errors=True)
    shutil.copytree(wheels, TARGET)
    return source


def check_source(source: Path, version: str) -> str:
    """Check that a clone is the release of a version; return the version in force.

    Args:
        source: the clone.
        version: version of the release; empty: the build is no release, and its version is free.

    Raises:
        ReleaseFailed: the clone is not the release, or its places differ in the version.
    """
    current = current_version(source)
    if version:
        problems = release_problems(source, version)
    else:
        print("this build is no release; VERSION=1.2.3 also checks the changelog", flush=True)
        problems = differing_places(source, current)
    if problems:
        raise ReleaseFailed("\n".join(problems))
    return current


def check_wheels(source: Path, version: str) -> dict[str, Path]:
    """Check contents and metadata of the wheels; return them by the names of distributions.

    Raises:
        ReleaseFailed: a wheel lacks something, or a registry would refuse it.
    """
    wheels = {path.name.split("-")[0]: path.resolve() for path in sorted(TARGET.glob("*.whl"))}
    licence = (source / "LICENSE").read_bytes()
    problems = [one for path in wheels.values() for one in problems_of(path, licence, version)]
    if problems:
        raise ReleaseFailed("\n".join(problems))
    check_metadata(list(wheels.values()))
    return wheels


def table(trials: Mapping[int, Trial], failures: Mapping[int, str]) -> str:
    """Return the table of all steps, with their seconds for each interpreter."""
    names = dict.fromkeys(name for trial in trials.values() for name in trial.seconds)
    rows = [["step", *(f"Python 3.{minor}" for minor in trials)]]
    rows += [[name, *(_cell(trial, name) for trial in trials.values())] for name in names]
    results = [failures.get(minor, "").partition(":")[0] for minor in trials]
    rows.append(["result", *(f"FAILED: {step}" if step else "passed" for step in results)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _cell(trial: Trial, name: str) -> str:
    seconds = trial.seconds.get(name)
    return "-" if seconds is None else f"{seconds:.1f} s"


def try_wheels(source: Path, wheels: Mapping[str, Path], folder: Path) -> bool:
    """Use the wheels with each interpreter and print one table; return whether all steps passed."""
    trials, failures = {}, {}
    for minor, path in find_interpreters().items():
        print(f"using the wheels with {path} ...", flush=True)
        place = folder / f"python3.{minor}"
        place.mkdir()
        trials[minor] = Trial(path, wheels, place, source)
        if failure := trials[minor].run():
            failures[minor] = failure
    print("\n" + table(trials, failures) + "\n")
    for minor, failure in failures.items():
        print(f"FAILED with Python 3.{minor}: {failure}")
    for minor in sorted(set(MINORS) - set(trials)):
        print(f"not checked: Python 3.{minor} was not found on this machine")
    return bool(trials) and not failures


def release(checkout: Path, commit: str, folder: Path, version: str) -> bool:
    """Build and check a release of a commit; return whether all checks passed.

    Raises:
        ReleaseFailed: the wheels cannot be released.
    """
    lacking = download_crates()
    source = build_twice(checkout, commit, folder, with_edge=not lacking)
    wheels = check_wheels(source, check_source(source, version))
    write_bills(source, TARGET)
    write_sums(TARGET)
    print((TARGET / "SHA256SUMS").read_text())
    if lacking:
        print(f"NOT BUILT: the wheel of the edge: {lacking}")
    else:
        print(f"the wheel of the edge has the tags {wheels[EDGE].stem.split('-', 2)[2]}")
    return try_wheels(source, wheels, folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Release HEAD; return the exit status."""
    parser = argparse.ArgumentParser(description="Build and check the wheels of HEAD.")
    parser.add_argument(
        "--version", default="", help="the version of which HEAD must be the release"
    )
    version = parser.parse_args(arguments).version
    checkout = Path(git(Path(), "rev-parse", "--show-toplevel"))
    commit = git(checkout, "rev-parse", "HEAD")
    print(f"release of {commit}", flush=True)
    if git(checkout, "status", "--porcelain"):
        print("note: the clones lack uncommitted changes", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="taskraft-release-"))
    try:
        passed = release(checkout, commit, folder, version)
    except ReleaseFailed as error:
        print(f"RED: {error}")
        passed = False
    if not passed:
        print(f"RED: clones, environments and logs: {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print(f"green: {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
