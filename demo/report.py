"""Run the Spark report over the change feed of the demo's cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from demo.event_log import EventLog
from tools.environment import JAVA_FLOOR, JAVA_HINT, java_version

PROGRESS_S: Final = 15.0
"""Interval of a line that the report is still being made: about 20 s in all on an idle laptop,
minutes on a busy small machine."""


class ReportFailed(Exception):
    """The report failed; the message names the log file."""


def make_report(target: str, tube: str, folder: Path, event_log: EventLog) -> str:
    """Write the report into ``folder``; return its path, or why there is no report.

    Raises:
        ReportFailed: Java is installed, but no report was written.
    """
    if java_version() < JAVA_FLOOR:
        event_log.print_event(JAVA_HINT)
        return f"none: Java {JAVA_FLOOR} or later is missing"
    event_log.print_event("Spark reads the change feed and writes the report")
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "spark.log"
    command = [sys.executable, "-m", "taskraft_pipeline", "report"]
    command += ["--target", target, "--tubes", tube, "--out", str(folder)]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as spark:
        try:
            status = wait_with_progress(spark, event_log)
        except BaseException:
            spark.kill()
            raise
    if status:
        raise ReportFailed(f"missing: Spark ended with status {status}, see {log}")
    text = folder / "report.txt"
    if text.exists():
        event_log.print_lines(text.read_text().splitlines())
    return str(folder / "report.html")


def wait_with_progress(spark: subprocess.Popen[bytes], event_log: EventLog) -> int:
    """Wait for Spark, and print now and then that the report is still being made."""
    while True:
        try:
            return spark.wait(PROGRESS_S)
        except subprocess.TimeoutExpired:
            event_log.print_event("Spark still works on the report; Ctrl-C ends the demo")
