"""Write the version and the changelog of a release: ``make prepare-release VERSION=1.2.3``.

The program commits nothing. The output names the pages that still have to be corrected by hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tools.release import changelog
from tools.release.last_release import ReleaseFileInvalid, read_last_release
from tools.release.readiness import release_problems
from tools.release.versions import VERSION, write_version


def prepare(root: Path, version: str, date: str) -> list[str]:
    """Make a checkout the release of a version; return what is left to do by hand.

    Raises:
        ValueError: the version has not three numbers, or is not higher than the last release.
        ChangelogInvalid: "Unreleased" cannot become the section of the version.
        ReleaseFileInvalid: the last release is not known.
    """
    if VERSION.fullmatch(version) is None:
        raise ValueError(f"version {version!r} is not of the form 1.2.3")
    last = read_last_release(root)
    if last and _numbers(version) <= _numbers(last.version):
        raise ValueError(f"version {version} is not higher than the last release, {last.version}")
    path = root / changelog.NAME
    text = changelog.released(path.read_text(), version, date)
    write_version(root, version)
    path.write_text(text)
    return release_problems(root, version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare the checkout in the working directory; return the exit status."""
    parser = argparse.ArgumentParser(description="Write the version and the changelog.")
    parser.add_argument("version", help="version of the release, for example 1.2.3")
    version = parser.parse_args(arguments).version
    try:
        problems = prepare(Path(), version, datetime.now(UTC).date().isoformat())
    except (ValueError, changelog.ChangelogInvalid, ReleaseFileInvalid) as error:
        print(f"RED: {error}")
        return 1
    for problem in problems:
        print(f"left to do: {problem}")
    if not problems:
        print(f"commit the changes as release {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
