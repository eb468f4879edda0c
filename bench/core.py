"""Run the measurements of the cores and of one node, each in its own process.

Run: `python -m bench.core [name ...]` (`make bench-core`), optionally with the names of some
measurements. `--full` uses the target sizes, which takes half an hour and 4 GiB of disk space.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

MEASUREMENTS: dict[str, tuple[list[str], list[str]]] = {
    "core_cycle": ([], []),
    "busy_subqueues": ([], ["--tasks", "150000"]),
    "subqueue_takes": (["--busy", "100,20000"], ["--busy", "100,100000"]),
    "typed_takes": ([], ["--before", "100,5000000"]),
    "backlog": ([], ["--tasks", "5000000"]),
    "delayed_tasks": ([], ["--tasks", "1000000"]),
    "node_backlog": ([], ["--tasks", "5000000"]),
    "node_delayed": ([], ["--tasks", "1000000"]),
    "raft_commit_path": ([], []),
}
"""Modules, with their arguments for a short run and for the full size."""


def main() -> int:
    """Run the requested measurements; return 1 if one failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", choices=[*MEASUREMENTS, []], metavar="name")
    parser.add_argument("--full", action="store_true", help="use the target sizes")
    arguments = parser.parse_args()
    failed = 0
    for name in arguments.names or MEASUREMENTS:
        short, full = MEASUREMENTS[name]
        command = [sys.executable, "-m", f"bench.{name}", *(full if arguments.full else short)]
        failed |= subprocess.run(command, check=False).returncode
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
