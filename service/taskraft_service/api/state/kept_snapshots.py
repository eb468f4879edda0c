"""Keep the snapshots that callers read, for some time after their last use."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.limits import SNAPSHOTS_MAX, SNAPSHOTS_SHARE_MAX


class SnapshotContent(Protocol):
    """The files of a snapshot."""

    def close(self) -> None:
        """Delete the files; runs on a worker thread."""


Content = TypeVar("Content", bound=SnapshotContent)


class KeptSnapshot(Generic[Content]):
    """A snapshot with its number of users, and the timer that ends it."""

    def __init__(self, snapshot_id: str, owner: str, content: Content) -> None:
        self.snapshot_id = snapshot_id
        self.owner = owner
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
        self._opening: Counter[str] = Counter()
        """For each principal, the number of its snapshots that are being created."""

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
        self, snapshot_id: str, owner: str, create: Callable[[], Awaitable[Content]]
    ) -> KeptSnapshot[Content]:
        """Create a snapshot and keep it; the snapshot that is idle longest may be deleted for it.

        The only snapshot of another principal is never deleted. The caller uses the snapshot before
        it awaits again, because nothing ends an unused one.

        Args:
            snapshot_id: the id of the new snapshot.
            owner: the principal of the caller; empty without access control.
            create: creates the snapshot.

        Raises:
            CallRefused: LIMIT_REACHED, too many snapshots are in use, or the principal has its
                share.
        """
        self._make_room(owner)
        self._opening[owner] += 1
        try:
            kept = KeptSnapshot(snapshot_id, owner, await create())
        finally:
            self._opening[owner] -= 1
            self._opening += Counter()  # drops the counts of 0
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

    def _make_room(self, owner: str) -> None:
        """Delete the snapshot that is idle longest if the owner or the node has too many."""
        counts = Counter(kept.owner for kept in self._kept.values()) + self._opening
        if owner and counts[owner] >= SNAPSHOTS_SHARE_MAX:
            deletable = {owner}
            most = SNAPSHOTS_SHARE_MAX
            what = f'principal "{owner}" uses {most} snapshots'
            limit = {"limit": "snapshots_share_max", "principal": owner}
        elif counts.total() >= SNAPSHOTS_MAX:
            deletable = {one for one in counts if counts[one] > 1 or one == owner}
            what, most = f"{SNAPSHOTS_MAX} snapshots are in use", SNAPSHOTS_MAX
            limit = {"limit": "snapshots_max"}
        else:
            return
        idle = [
            (kept.timer.when(), kept)
            for kept in self._kept.values()
            if kept.timer is not None and kept.owner in deletable
        ]
        if not idle:
            raise CallRefused(
                error_pb2.Error.LIMIT_REACHED,
                f"{what} on node {self._node}; ask another node, or retry later",
                limit | {"value": str(most)},
            )
        _, oldest = min(idle, key=lambda one: one[0])
        if oldest.timer is not None:
            oldest.timer.cancel()
        self._forget(oldest)

    def _forget(self, kept: KeptSnapshot[Content]) -> None:
        del self._kept[kept.snapshot_id]
        # The next start of the node deletes the files if this thread does not run any more.
        asyncio.get_running_loop().run_in_executor(None, kept.content.close)
