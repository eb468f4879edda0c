"""Keep the snapshots that callers read, for some time after their last use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, Protocol, TypeVar

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.status import CallRefused

KEPT_MAX: Final = 4
"""Maximum number of snapshots that a node keeps for one method."""


class SnapshotContent(Protocol):
    """The files of a snapshot."""

    def close(self) -> None:
        """Delete the files; runs on a worker thread."""


Content = TypeVar("Content", bound=SnapshotContent)


class KeptSnapshot(Generic[Content]):
    """A snapshot with its number of users, and the timer that ends it."""

    def __init__(self, snapshot_id: str, content: Content) -> None:
        self.snapshot_id = snapshot_id
        self.content = content
        self.users = 0
        self.timer: asyncio.TimerHandle | None = None


class KeptSnapshots(Generic[Content]):
    """The snapshots of one method, by id; on the event loop.

    Args:
        node: name of this node, for errors.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._kept: dict[str, KeptSnapshot[Content]] = {}
        self._opening = 0

    def find(self, snapshot_id: str) -> KeptSnapshot[Content]:
        """Return a snapshot that is kept.

        Raises:
            CallRefused: SNAPSHOT_NOT_FOUND.
        """
        kept = self._kept.get(snapshot_id)
        if kept is None:
            raise CallRefused(
                error_pb2.Error.SNAPSHOT_NOT_FOUND,
                f"node {self._node} does not keep this snapshot; open a new one",
                {"snapshot_id": snapshot_id},
            )
        return kept

    async def add(
        self, snapshot_id: str, create: Callable[[], Awaitable[Content]]
    ) -> KeptSnapshot[Content]:
        """Create a snapshot and keep it; the snapshot that is idle longest may be deleted for it.

        The caller uses the snapshot before it awaits again, because nothing ends an unused one.

        Raises:
            CallRefused: LIMIT_REACHED, too many snapshots are in use.
        """
        self._make_room()
        self._opening += 1
        try:
            kept = KeptSnapshot(snapshot_id, await create())
        finally:
            self._opening -= 1
        self._kept[snapshot_id] = kept
        return kept

    @contextmanager
    def used(self, kept: KeptSnapshot[Content], keep_seconds: float) -> Iterator[Content]:
        """Keep a snapshot while it is used, and for some seconds after the last use."""
        kept.users += 1
        if kept.timer is not None:
            kept.timer.cancel()
            kept.timer = None
        try:
            yield kept.content
        finally:
            kept.users -= 1
            if not kept.users:
                loop = asyncio.get_running_loop()
                kept.timer = loop.call_later(keep_seconds, self._forget, kept)

    def _make_room(self) -> None:
        """Delete the snapshot that is idle longest if too many snapshots are kept."""
        if len(self._kept) + self._opening < KEPT_MAX:
            return
        idle = [(kept.timer.when(), kept) for kept in self._kept.values() if kept.timer is not None]
        if not idle:
            raise CallRefused(
                error_pb2.Error.LIMIT_REACHED,
                f"{KEPT_MAX} snapshots of node {self._node} are in use; ask another node, or retry "
                f"later",
                {"limit": "snapshots", "value": str(KEPT_MAX)},
            )
        _, oldest = min(idle, key=lambda one: one[0])
        if oldest.timer is not None:
            oldest.timer.cancel()
        self._forget(oldest)

    def _forget(self, kept: KeptSnapshot[Content]) -> None:
        del self._kept[kept.snapshot_id]
        # The next start of the node deletes the files if this thread does not run any more.
        asyncio.get_running_loop().run_in_executor(None, kept.content.close)
