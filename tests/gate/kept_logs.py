"""Keep what explains the failure of a test: logs of its nodes, and stacks of a test that hung."""

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.gate.time_limits import stacks_file

BEGAN: Final = pytest.StashKey[float]()
"""Time at which a test began, in seconds since the Unix epoch, as files have it."""
NODE_LOG: Final = "node.log"


def folder_of(config: pytest.Config, test: str) -> Path:
    """Return the folder for the logs of a failed test."""
    return config.rootpath / "var" / "tests" / "failed" / re.sub(r"[^\w.-]+", "_", test)[:150]


def keep_logs(config: pytest.Config, test: str, source: Path, since: float) -> str:
    """Copy the logs of nodes that were written since a time; return a sentence about them."""
    target = folder_of(config, test)
    logs = [path for path in source.rglob(NODE_LOG) if path.stat().st_mtime >= since]
    for path in logs:
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return f"{len(logs)} logs of nodes are kept in {target}" if logs else ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Record when a test began."""
    item.stash[BEGAN] = time.time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Keep the logs of the nodes that wrote while a failed test ran."""
    report: Any = yield
    if report.failed and BEGAN in item.stash:
        factory: Any = item.config._tmp_path_factory
        base = factory._basetemp  # None: no test has asked for a folder, so there are no logs
        kept = base and keep_logs(item.config, item.nodeid, base, item.stash[BEGAN])
        if kept:
            report.sections.append(("nodes", kept))
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: Any) -> None:
    """Add stacks and logs to the report of a test that ended its process."""
    worker, config = report.node.gateway.id, report.node.config
    base = config._tmp_path_factory.getbasetemp() / f"popen-{worker}"
    stacks = stacks_file(config, worker)
    if stacks.exists():
        report.sections.append(("stacks", stacks.read_text()))
    if kept := keep_logs(config, crashitem, base, 0.0):
        report.sections.append(("nodes", kept))
