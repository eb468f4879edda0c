"""Replay every trace of a folder; exit with 1 if any differs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.oracle.pool import replay_all
from tests.oracle.trace import traces_below


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("directory", type=Path, help="the folder of scripted/ and random/")
    parser.add_argument("--only", default="", help="only traces whose path has this text")
    arguments = parser.parse_args()
    if not arguments.directory.is_dir():
        print(f"skipped: {arguments.directory} is not here")
        return 0
    paths = [path for path in traces_below(arguments.directory) if arguments.only in str(path)]
    if not paths:
        print(f"no traces below {arguments.directory}/scripted and random", file=sys.stderr)
        return 2
    different = 0

    def tell(path: Path, found: list[str]) -> None:
        nonlocal different
        different += bool(found)
        print(f"{'DIFF ' if found else 'ok   '} {path.parent.name}/{path.stem}", flush=True)
        for line in found:
            print(f"      {line}")

    replay_all(paths, tell)
    print(f"{len(paths)} traces, {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
