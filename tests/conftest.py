"""Configure all tests: the gate's stages and limits, and failures for skips of required tests."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "taskraft.testing.plugin",  # also in a checkout without its entry points
    "tests.gate.stages",
    "tests.gate.real_time_guard",
    "tests.gate.time_limits",
    "tests.gate.scheduler",
    "tests.gate.kept_logs",
    "tests.gate.outcomes",
    "tests.gate.forked_nodes",
]

# Examples have no deadline, because their duration depends on the machine. CI draws the same
# examples in each run, so that only a change can break a run. Other runs draw new examples.
settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("untimed")

REQUIRED_BY = {
    "spark": "TASKRAFT_REQUIRE_SPARK",
    "foreign": "TASKRAFT_REQUIRE_FOREIGN",
    "browser": "TASKRAFT_REQUIRE_BROWSER",
    "edge": "TASKRAFT_REQUIRE_EDGE",
}
"""By marker, the environment variable (set by .ci/run or the Makefile) that turns a skip into a
failure."""


def pytest_addoption(parser):
    """Add the option that writes the actual answers into scenario files, for review as a diff."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the scenario files")


def pytest_configure():
    """Restore the handler of Ctrl-C, also for the programs that tests start.

    A shell makes its background jobs ignore SIGINT, and child processes inherit this setting.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """Restore environment variables that a test sets, because nodes of later tests inherit them.

    Fixtures set their variables before, and restore them themselves.
    """
    before = dict(os.environ)
    try:
        return (yield)
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def required_of(item):
    """Return the variables that forbid to skip a test, by the marker of the test.

    A test over the edge has only the variable of the edge, because CI runs other tests before it
    builds the edge.
    """
    own = {name: one for name, one in REQUIRED_BY.items() if item.get_closest_marker(name)}
    return {"edge": own["edge"]} if "edge" in own else own


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Turn the skip of a required test into a failure that keeps the skip's reason."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        for variable in required_of(item).values():
            if os.environ.get(variable):
                report.outcome = "failed"
                report.longrepr = f"{variable} is set, but: {report.longrepr[2]}"
    return report
