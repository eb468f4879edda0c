"""Write HEAD, which must be the commit of a release, into RELEASE: ``make record-release``."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.gate import git
from tools.release.last_release import (
    LastRelease,
    ReleaseFileInvalid,
    read_last_release,
    write_last_release,
)
from tools.release.readiness import release_problems
from tools.release.versions import current_version


def record(root: Path) -> list[str]:
    """Write the version and the commit of HEAD into RELEASE; return why not, or an empty list.

    Raises:
        ReleaseFileInvalid: the file RELEASE is not in its format.
    """
    if git(root, "status", "--porcelain"):
        return ["the checkout has uncommitted changes; commit the release first"]
    version = current_version(root)
    problems = release_problems(root, version)
    last = read_last_release(root)
    if last and last.version == version:
        problems.append(f"version {version} was released already, at the commit {last.commit}")
    if not problems:
        write_last_release(root, LastRelease(version, git(root, "rev-parse", "HEAD")))
    return problems


def main() -> int:
    """Record the checkout in the working directory; return the exit status."""
    try:
        problems = record(Path())
    except ReleaseFileInvalid as error:
        problems = [str(error)]
    for problem in problems:
        print(f"RED: {problem}")
    if not problems:
        print("commit RELEASE; from this commit on, `make breaking` compares with the release")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
