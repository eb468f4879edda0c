"""Give each file of tests to one process, and go on after a test that ended its process.

Files that share costly programs go to the same process.
"""

from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

SHARING: Final = ("tests/console", "tests/pipeline")
"""Folders whose tests of stage 2 share one cluster with a console, or one JVM with Spark. One
process runs all of them, because each further process would start these programs again and keep
them to the end of the stage."""

APART: Final = ("tests/pipeline/test_interrupts.py",)
"""Files of these folders whose tests start programs of their own and share none."""


class FileScheduler(LoadFileScheduling):
    """Sends files to processes.

    The files of a folder in ``SHARING`` go to one process, except for those in ``APART``.

    pytest-xdist would send a test that ended its process to the next process, which would then hang
    too. This scheduler sends only the tests after that one.
    """

    def _split_scope(self, nodeid: str) -> str:
        """Return what is sent to one process: the file of a test, or its folder."""
        file = super()._split_scope(nodeid)
        if self.config.getoption("--stage") != 2 or file in APART:
            return file
        return next((folder for folder in SHARING if file.startswith(f"{folder}/")), file)

    def remove_node(self, node: Any) -> str | None:
        """Take the tests back from a process that has ended; return the test that ended it."""
        files = self.assigned_work[node]
        for tests in files.values():
            for test, is_done in tests.items():
                if not is_done:
                    tests[test] = True
                    super().remove_node(node)
                    return str(test)
        super().remove_node(node)
        return None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduler | None:
    """Use the scheduler for ``--dist loadfile``."""
    return FileScheduler(config, log) if config.getoption("dist") == "loadfile" else None
