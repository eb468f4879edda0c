"""Run the demo; exit with 1 if a task was lost or leased twice (`make demo`)."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Final

from demo.consumer_processes import ConsumerFailed
from demo.demo_run import DemoOptions, run_demo
from demo.feed_check import FeedBroken
from demo.progress_watcher import ProgressStalled
from taskraft import TaskraftError
from tools.local_node import NodeFailed

EXIT_NO_REPORT: Final = 3
"""The queue has kept its promises, but there is no report."""


def main() -> int:
    """Run the demo, print the verdict, return the exit status."""
    parser = argparse.ArgumentParser(prog="make demo", description="Demonstrate the whole product.")
    parser.add_argument(
        "--folder", type=Path, default=Path("var/demo"), help="output folder (var/demo)"
    )
    parser.add_argument("--nodes", type=int, default=3, help="number of nodes (3)")
    parser.add_argument("--consumers", type=int, default=4, help="number of consumer processes (4)")
    parser.add_argument("--no-report", action="store_true", help="skip the Spark report")
    arguments = parser.parse_args()
    # Run the clean-up, which stops the nodes, on SIGTERM as on Ctrl-C.
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
        print("demo: interrupted; all started processes have ended", file=sys.stderr)
        return 130
    print("", *verdict.lines(), sep="\n")
    if not verdict.is_clean:
        return 1
    return EXIT_NO_REPORT if verdict.is_report_missing else 0


if __name__ == "__main__":
    sys.exit(main())
