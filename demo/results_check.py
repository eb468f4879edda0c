"""Read the stored results of the finished tasks, and compare them with the files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.source_files import Findings, examine
from taskraft import Tube


@dataclass(slots=True, frozen=True)
class ResultsCheck:
    """Result of checking the stored results."""

    stored: int
    """Number of tasks with a correct result."""
    missing: Sequence[str]
    """Files without a result."""
    wrong: Sequence[str]
    """Files with a wrong result."""

    @property
    def is_clean(self) -> bool:
        """Return whether every result is correct."""
        return not (self.missing or self.wrong)


def read_results(tube: Tube) -> Mapping[int, Findings | None]:
    """Return the stored result of each finished task; None if it is malformed."""
    return {task.id: _findings(task.result) for task in tube.list("state = DONE")}


def _findings(result: bytes) -> Findings | None:
    try:
        return Findings(**json.loads(result))
    except (ValueError, TypeError):
        return None


def check_results(paths: Mapping[int, str], results: Mapping[int, Findings | None]) -> ResultsCheck:
    """Compare the results with the files, which are read again; ``paths`` is by task id."""
    missing = [path for task_id, path in paths.items() if task_id not in results]
    wrong = [
        path
        for task_id, path in paths.items()
        if task_id in results and results[task_id] != examine(Path(path))
    ]
    return ResultsCheck(len(paths) - len(missing) - len(wrong), missing, wrong)
