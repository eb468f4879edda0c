"""Read back what the consumers stored with the finished tasks, and compare it with the files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.source_files import Findings, examine
from taskraft import Tube


@dataclass(slots=True, frozen=True)
class ResultsCheck:
    """What the results in the cluster say."""

    stored: int
    """Tasks whose result is there and right."""
    missing: Sequence[str]
    """Files without a result."""
    wrong: Sequence[str]
    """Files whose result is not what is in them."""

    @property
    def is_clean(self) -> bool:
        """Tell whether every result is there and right."""
        return not (self.missing or self.wrong)


def read_results(tube: Tube) -> Mapping[int, Findings | None]:
    """Return what the cluster keeps of each finished task; None: not what a consumer stores."""
    return {task.id: _findings(task.result) for task in tube.list("state = DONE")}


def _findings(result: bytes) -> Findings | None:
    try:
        return Findings(**json.loads(result))
    except (ValueError, TypeError):
        return None


def check_results(paths: Mapping[int, str], results: Mapping[int, Findings | None]) -> ResultsCheck:
    """Compare the results with the files, which are read again; ``paths`` is by task."""
    missing = [path for task_id, path in paths.items() if task_id not in results]
    wrong = [
        path
        for task_id, path in paths.items()
        if task_id in results and results[task_id] != examine(Path(path))
    ]
    return ResultsCheck(len(paths) - len(missing) - len(wrong), missing, wrong)
