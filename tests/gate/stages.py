"""Divide the tests into two stages.

Stage 1 has the tests whose result depends on their input only: pure code, code in memory, virtual
time. Stage 2 has the tests that watch the real clock: real processes, ports, timers. A busy machine
can make a test of stage 2 late, but no test of stage 1.

Tests with the marker ``nightly`` run only with the option ``--nightly``, which selects no others.
"""

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

REAL_TIME: Final = "real_time"
"""Marker of the tests of stage 2."""
NIGHTLY: Final = "nightly"
"""Marker of tests that take long and seldom find what no other test finds."""
KINDS: Final = ("docs", "spark", "browser", "cluster", "foreign")
"""Markers of kinds of tests that belong to stage 2, those with the longest files first."""

_KIND: Final = rf"\bmark\.(?:{'|'.join((REAL_TIME, *KINDS))})\b"
_MARKS_A_TEST: Final = re.compile(_KIND)
_MARKS_ALL_TESTS: Final = re.compile(rf"^pytestmark = (?:\[[^\]]*|[^\[\n]*){_KIND}", re.MULTILINE)


@cache
def may_have(file: Path, stage: int) -> bool:
    """Return whether a file may have tests of a stage.

    The marks in the text of the file, and in conftest.py beside the file, decide.

    An import of the file would tell for sure, but the imports of all files take 17 s of CPU time.
    """
    source = file.read_text()
    if stage == 1:
        return _MARKS_ALL_TESTS.search(source) is None
    shared = file.with_name("conftest.py")
    return any(
        _MARKS_A_TEST.search(text)
        for text in (source, shared.read_text() if shared.exists() else "")
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Return True to skip a file that has no tests of the chosen stage."""
    stage = config.getoption("--stage")
    is_skipped = (
        stage is not None
        and collection_path.match("test_*.py")
        and not may_have(collection_path, stage)
    )
    return True if is_skipped else None


def check_source(file: Path, test: str, stage: int) -> None:
    """Check that the run of a stage does not skip the file of one of its tests.

    Raises:
        pytest.UsageError: that run would skip the file.
    """
    if not may_have(file, stage):
        raise pytest.UsageError(
            f"{test} is of stage {stage}, but the source of its file does not tell: use"
            " pytest.mark in the file itself or in conftest.py beside it (tests/gate/stages.py)"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that run one stage alone, and the nightly tests."""
    parser.addoption("--nightly", action="store_true", help="run the nightly tests, and no others")
    parser.addoption("--stage", type=int, choices=(1, 2), help="run one of the two stages of tests")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for line in (
        f"{REAL_TIME}: watches the real clock, so a busy machine can make it late",
        f"{NIGHTLY}: takes long, and runs in `make nightly` only",
    ):
        config.addinivalue_line("markers", line)


def stage_of(item: pytest.Item) -> int:
    """Return the stage of a test."""
    marked = any(item.get_closest_marker(name) for name in (REAL_TIME, *KINDS))
    return 2 if marked else 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the chosen stage, and put the longest files first.

    Parallel processes then finish at about the same time.
    """
    stage = config.getoption("--stage")
    is_nightly = config.getoption("--nightly")
    chosen, other = [], []
    for item in items:
        check_source(item.path, item.nodeid, stage_of(item))
        of_night = item.get_closest_marker(NIGHTLY) is not None
        is_chosen = of_night == is_nightly and stage in (None, stage_of(item))
        (chosen if is_chosen else other).append(item)
    if other:
        items[:] = chosen
        config.hook.pytest_deselected(items=other)
    rank: dict[object, int] = {}
    for item in items:
        of_item = min(
            (place for place, name in enumerate(KINDS) if item.get_closest_marker(name)),
            default=len(KINDS),
        )
        rank[item.path] = min(rank.get(item.path, len(KINDS)), of_item)
    items.sort(key=lambda item: rank[item.path])
