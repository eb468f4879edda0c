"""Replay every trace of a folder, or random traces; exit with 1 if any differs.

``python -m tests.oracle FOLDER`` replays the recorded traces in its folders ``scripted`` and
``random``. ``python -m tests.oracle FOLDER --random 20 --seed 7`` first generates traces there, one
of each flavour for each of the seeds 7 to 26, with the model's answers.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.oracle.pool import replay_all
from tests.oracle.sequences import FLAVOURS, write_random_traces
from tests.oracle.trace import traces_below


def main() -> int:
    """Read the command line and run the traces; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("directory", type=Path, help="the folder of scripted/ and random/")
    parser.add_argument("--only", default="", help="only traces whose path has this text")
    parser.add_argument("--random", type=int, default=0, help="make so many random traces there")
    parser.add_argument("--seed", type=int, default=1, help="the first seed of the random traces")
    arguments = parser.parse_args()
    if arguments.random:
        seeds = range(arguments.seed, arguments.seed + arguments.random)
        write_random_traces(arguments.directory / "random", seeds, FLAVOURS)
    if not arguments.directory.is_dir():
        print(f"skipped: {arguments.directory} is not here")
        return 0
    paths = [path for path in traces_below(arguments.directory) if arguments.only in str(path)]
    if not paths:
        print(f"no traces below {arguments.directory}/scripted and random", file=sys.stderr)
        return 2
    different = 0

    def print_result(path: Path, found: list[str]) -> None:
        nonlocal different
        different += bool(found)
        print(f"{'DIFF ' if found else 'ok   '} {path.parent.name}/{path.stem}", flush=True)
        for line in found:
            print(f"      {line}")

    replay_all(paths, print_result)
    print(f"{len(paths)} traces, {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
