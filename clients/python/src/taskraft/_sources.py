"""Name the tubes to take from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from taskraft.v1 import task_service_pb2

Sources: TypeAlias = "str | Iterable[str] | Mapping[str, int]"
"""One tube, several tubes in order of priority over all, or tubes with their shares. A name may be
a pattern in which ``*`` stands for any characters."""


def sources_of(sources: Sources) -> list[task_service_pb2.TakeSource]:
    """Return the tubes as the contract writes them.

    Raises:
        TypeError: What is given names none.
    """
    if isinstance(sources, str):
        return [task_service_pb2.TakeSource(tube=sources)]
    if isinstance(sources, Mapping):
        return [
            task_service_pb2.TakeSource(tube=tube, weight=weight)
            for tube, weight in sources.items()
        ]
    if not isinstance(sources, Iterable):
        raise TypeError(f"tubes are named by texts, not {sources!r}")
    return [task_service_pb2.TakeSource(tube=tube) for tube in sources]
