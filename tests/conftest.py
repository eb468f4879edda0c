"""Apply to all tests: where a tool is required, its absence is a failure; long files come first."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says more about the machine than about the code.
# What CI draws is the same each time: a change fails by itself; everybody else draws anew.
settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("untimed")

LONGEST_FIRST = ("docs", "spark", "cluster", "foreign")
"""Markers of tests that take long, in the order in which their files begin."""
REQUIRED_BY = {"spark": "TASKRAFT_REQUIRE_SPARK", "foreign": "TASKRAFT_REQUIRE_FOREIGN"}
"""The variable, set by .ci/run, under which tests with a marker may not be skipped."""


def pytest_addoption(parser):
    """Add what writes the actual answers into scenario files, to be reviewed as a difference."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the scenario files")


def pytest_configure():
    """Let Ctrl-C be heard, by the programs that tests start as well.

    Shells let what they run in the background ignore it, and programs inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Begin with the files that take longest, so that processes side by side end together."""
    rank = {}
    for item in items:
        marked = [
            place for place, name in enumerate(LONGEST_FIRST) if item.get_closest_marker(name)
        ]
        rank[item.path] = min(rank.get(item.path, len(LONGEST_FIRST)), *marked, len(LONGEST_FIRST))
    items.sort(key=lambda item: rank[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Turn the skip of a required test into a failure that keeps the skip's reason."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        for marker, variable in REQUIRED_BY.items():
            if item.get_closest_marker(marker) and os.environ.get(variable):
                report.outcome = "failed"
                report.longrepr = f"{variable} is set, but: {report.longrepr[2]}"
    return report
