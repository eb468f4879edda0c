"""Give each file of tests to one process, and go on after a test that ended its process."""

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling


class FileScheduler(LoadFileScheduling):
    """Sends files to processes.

    pytest-xdist would send a test that ended its process to the next process, which would then hang
    too. This scheduler sends only the tests after that one.
    """

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
