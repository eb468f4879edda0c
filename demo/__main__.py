"""Play the demo and exit with 1 when anything was lost or held twice (`make demo`)."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from demo.consumer_processes import ConsumerFailed
from demo.demo_run import DemoOptions, run_demo
from demo.feed_check import FeedBroken
from demo.progress_watcher import ProgressStalled
from taskraft import TaskraftError
from tools.local_cluster import NodeFailed


def main() -> int:
    """Play, print the verdict, return the exit status."""
    parser = argparse.ArgumentParser(prog="make demo", description="Show the whole product.")
    parser.add_argument("--folder", type=Path, default=Path("var/demo"), help="to write to")
    parser.add_argument("--nodes", type=int, default=3, help="nodes of the cluster (3)")
    parser.add_argument("--consumers", type=int, default=4, help="consumer processes (4)")
    parser.add_argument("--no-report", action="store_true", help="leave the Spark report out")
    arguments = parser.parse_args()
    # Whoever ends us ends the nodes too: the clean-up runs as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = DemoOptions(
        folder=arguments.folder,
        nodes=arguments.nodes,
        consumers=arguments.consumers,
        has_report=not arguments.no_report,
    )
    try:
        verdict = run_demo(options)
    except (NodeFailed, ConsumerFailed, ProgressStalled, FeedBroken, TaskraftError) as error:
        print(f"demo: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; everything that it started has ended", file=sys.stderr)
        return 130
    print("", *verdict.lines(), sep="\n")
    return 0 if verdict.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
