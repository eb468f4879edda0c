"""Write the outcome of each test into a file, for the program that runs the stages."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

REASON_CHARS_MAX = 300


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test."""

    test: str
    """Node id of pytest."""
    failed: bool
    skipped: bool
    seconds: float
    """Duration with set-up and teardown."""
    reason: str = ""
    """First line of the failure; empty if the test did not fail."""


class OutcomeFile:
    """Collects the reports of all processes of a run, and writes a line per test at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = {}
        self._reasons: dict[str, str] = {}
        self._skipped: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the report of one phase of a test."""
        test = report.nodeid
        self._seconds[test] = self._seconds.get(test, 0.0) + getattr(report, "duration", 0.0)
        if report.failed:
            self._reasons.setdefault(test, reason_of(report))
        elif report.skipped:
            self._skipped.add(test)

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        outcomes = [
            Outcome(
                test, test in self._reasons, test in self._skipped, seconds,
                self._reasons.get(test, ""),
            )
            for test, seconds in self._seconds.items()
        ]  # fmt: skip
        lines = [json.dumps(asdict(outcome)) + "\n" for outcome in outcomes]
        self._path.write_text("".join(lines))


def reason_of(report: pytest.TestReport) -> str:
    """Return the first line of a failure."""
    longrepr: Any = report.longrepr
    crash = getattr(longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(longrepr)
    return next(iter(text.strip().splitlines()), "no reason")[:REASON_CHARS_MAX]


def read_outcomes(path: Path) -> list[Outcome]:
    """Return the outcomes in a file; empty if the run ended before it wrote the file."""
    if not path.exists():
        return []
    return [Outcome(**json.loads(line)) for line in path.read_text().splitlines()]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file."""
    parser.addoption("--outcomes", type=Path, help="write the outcome of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Collect outcomes in the process that starts the others."""
    path = config.getoption("--outcomes")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(OutcomeFile(path), "outcome-file")
