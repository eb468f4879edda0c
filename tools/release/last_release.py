"""Read and write the file RELEASE, which names the last release.

The file is needed because tags may not travel with a clone. A commit cannot contain its own
hash, so the file is written in the commit after the release.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAME: Final = "RELEASE"
NONE: Final = "none"
"""Content of the file before the first release."""
LINE: Final = re.compile(r"(\d+\.\d+\.\d+) ([0-9a-f]{40})")


class ReleaseFileInvalid(Exception):
    """The file RELEASE is missing or not in its format; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class LastRelease:
    """A release, with the full hash of its commit."""

    version: str
    commit: str


def read_last_release(root: Path) -> LastRelease | None:
    """Return the last release of a checkout; None: there was no release yet.

    Raises:
        ReleaseFileInvalid: the file is missing, or has another content than one release or NONE.
    """
    path = root / NAME
    if not path.exists():
        raise ReleaseFileInvalid(f"{path} does not exist; restore the file from the history")
    lines = path.read_text().splitlines()
    content = [line for line in lines if line and not line.startswith("#")]
    if content == [NONE]:
        return None
    match = LINE.fullmatch(content[0]) if len(content) == 1 else None
    if match is None:
        raise ReleaseFileInvalid(
            f'{path} has the lines {content}; expected one line, "{NONE}" or "1.2.3 <commit>"'
        )
    return LastRelease(*match.groups())


def write_last_release(root: Path, release: LastRelease) -> None:
    """Replace the line of the last release; keep the comments.

    Raises:
        ReleaseFileInvalid: the file is not in its format.
    """
    read_last_release(root)
    path = root / NAME
    comments = [line for line in path.read_text().splitlines() if line.startswith("#")]
    path.write_text("\n".join([*comments, f"{release.version} {release.commit}", ""]))
