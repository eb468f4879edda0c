"""End a test that hangs, without ending the run.

Each test has a limit: the option ``timeout`` of pytest, or its own marker ``timeout``. Three steps
follow, because no single one ends every test:

1. At the limit, pytest-timeout raises an error in the main thread by a signal. The test fails, its
   fixtures end, and the next test runs in the same process. This does not end C code that does not
   return.
2. ``GRACE_SECONDS`` later, a thread of C code (faulthandler) writes the stacks of all threads to
   a file and ends the process. The thread needs no lock of Python, so it also ends C code that
   keeps this lock.
3. pytest-xdist reports the test as failed, starts another process, and continues with the next
   test. Nodes end with the process that started them.
"""

import faulthandler
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

import pytest

GRACE_SECONDS: Final = 20.0
"""Default time between the limit of a test and the end of its process."""
STACKS: Final = pytest.StashKey[TextIO]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the time after the limit."""
    parser.addoption(
        "--grace", type=float, default=GRACE_SECONDS, help="seconds from a limit to the last resort"
    )


def stacks_file(config: pytest.Config, worker: str) -> Path:
    """Return the file to which a process writes its stacks if a test hangs in C code."""
    return config.rootpath / "var" / "tests" / f"stacks-{worker}.txt"


def pytest_configure(config: pytest.Config) -> None:
    """Open the file for the stacks of this process, which runs tests."""
    worker = getattr(config, "workerinput", {}).get("workerid", "main")
    path = stacks_file(config, worker)
    path.parent.mkdir(parents=True, exist_ok=True)
    config.stash[STACKS] = path.open("w")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the file, and remove it if no test has hung."""
    file = config.stash[STACKS]
    is_empty = file.tell() == 0
    file.close()
    if is_empty:
        Path(file.name).unlink(missing_ok=True)


def limit_seconds(item: pytest.Item) -> float:
    """Return the limit of a test in seconds; 0: the test has no limit."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return float(marker.args[0])
    option = item.config.getoption("timeout")
    return float(option if option is not None else item.config.getini("timeout") or 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process of a test that still runs some time after its limit."""
    limit = limit_seconds(item)
    if limit:
        last_resort = limit + item.config.getoption("--grace")
        faulthandler.dump_traceback_later(last_resort, exit=True, file=item.config.stash[STACKS])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
