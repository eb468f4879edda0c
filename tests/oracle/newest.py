"""A tube driver for traces: last in, first out."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from taskraft_service.queue.entities.tube_driver import ArrivingTask, Placement

_METADATA: Final = "Metadata-Version: 2.1\nName: taskraft-oracle-newest\nVersion: 1\n"
_ENTRY_POINTS: Final = "[taskraft.drivers]\nnewest = tests.oracle.newest:DRIVER\n"


class Newest:
    """Satisfies ``taskraft_service.queue.entities.tube_driver.Driver``."""

    name = "newest"
    version = 1

    @staticmethod
    def refuse(arrival: ArrivingTask) -> str:
        """Accept every task."""
        del arrival
        return ""

    @staticmethod
    def place(arrival: ArrivingTask, memory: bytes) -> Placement:
        """Place a task in front of all earlier tasks."""
        del arrival
        come = int(memory or b"0") + 1
        return Placement(-come, b"%d" % come)


DRIVER: Final = Newest()


def install(folder: Path) -> None:
    """Install this driver into a folder for PYTHONPATH, as a distribution would."""
    info = folder / "taskraft_oracle_newest-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(_METADATA)
    (info / "entry_points.txt").write_text(_ENTRY_POINTS)
