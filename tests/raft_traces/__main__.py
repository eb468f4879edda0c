"""Run every trace below the given directories; exit with 1 if any trace differs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.raft_traces.replay import replay, rewrite


def main() -> int:
    """Read the command line and run the traces; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.raft_traces", description=__doc__)
    parser.add_argument("directory", type=Path, nargs="+")
    parser.add_argument("--rewrite", action="store_true", help="write the actual output instead")
    arguments = parser.parse_args()
    paths = sorted(path for each in arguments.directory for path in each.rglob("*.txt"))
    if not paths:
        print(f"no *.txt below {', '.join(map(str, arguments.directory))}", file=sys.stderr)
        return 2
    if arguments.rewrite:
        for path in paths:
            rewrite(path)
        return 0
    differences = 0
    for path in paths:
        difference = replay(path)
        print(f"ok    {path}" if difference is None else f"DIFF  {difference}")
        differences += difference is not None
    print(f"{len(paths)} files, {differences} differ")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
