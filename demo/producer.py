"""Put one task per source file; smaller files are more urgent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from demo.source_files import SourceFile
from taskraft import AsyncClient

PUTS_AT_ONCE: Final = 25
"""Number of concurrent puts; few, so that puts are in flight when the leader is killed."""

PUT_TIMEOUT: Final = "30s"
"""Longer than any failover, so that no outcome stays unknown."""


async def put_files(target: str, tube: str, files: Sequence[SourceFile]) -> Mapping[int, str]:
    """Put the files, and return the path of each acknowledged task by its id.

    Each put is its own call; the client sends concurrent puts in one message.
    """
    paths: dict[int, str] = {}
    async with AsyncClient(target, name="producer", timeout=PUT_TIMEOUT) as client:
        handle = client.tube(tube)
        for start in range(0, len(files), PUTS_AT_ONCE):
            part = files[start : start + PUTS_AT_ONCE]
            puts = (handle.put(str(file.path), priority=file.size_bytes) for file in part)
            ids = await asyncio.gather(*puts)
            paths.update(zip(ids, (str(file.path) for file in part), strict=True))
    return paths
