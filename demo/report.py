"""Run the Spark report over the change feed of the demo's cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from demo.event_log import EventLog
from tools.environment import JAVA_FLOOR, JAVA_HINT, java_version

TIMEOUT_S: Final = 300
"""Maximum time for the report: about 20 s on an idle laptop, minutes on a busy small machine."""


class ReportFailed(Exception):
    """The report failed or took too long; the message names the log file."""


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
    try:
        with log.open("w") as output:
            subprocess.run(
                [*command, "--target", target, "--tubes", tube, "--out", str(folder)],
                stdout=output,
                stderr=output,
                timeout=TIMEOUT_S,
                check=True,
            )
    except subprocess.TimeoutExpired as error:
        raise ReportFailed(f"not finished after {TIMEOUT_S} s; see {log}") from error
    except subprocess.CalledProcessError as error:
        raise ReportFailed(f"failed, see {log}") from error
    text = folder / "report.txt"
    if text.exists():
        event_log.print_lines(text.read_text().splitlines())
    return str(folder / "report.html")
