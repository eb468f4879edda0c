"""Name the tubes to take from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from taskraft._arguments import text, texts
from taskraft._fields import set_field
from taskraft.v1 import task_service_pb2

Sources: TypeAlias = "str | Iterable[str] | Mapping[str, int]"
"""One tube, several tubes in order of priority over all, or tubes with their shares. A name may be
a pattern in which ``*`` stands for any characters."""


def sources_of(sources: Sources) -> list[task_service_pb2.TakeSource]:
    """Return the tubes as the contract writes them.

    Raises:
        TypeError: What is given names none.
    """
    if not isinstance(sources, Mapping):
        return [task_service_pb2.TakeSource(tube=tube) for tube in texts("tubes", sources)]
    weighed = []
    for tube, weight in sources.items():
        source = task_service_pb2.TakeSource(tube=text("tubes", tube))
        set_field(source, "weight", weight, f"the weight of {tube}")
        weighed.append(source)
    return weighed
