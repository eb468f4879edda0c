"""Handle SaveSnapshot: stream a frozen state, and keep it so that a broken transfer can continue.

A frozen state consists of hard links to files of the database. Keeping a snapshot therefore costs
disk space only for files that the database has replaced since.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, Protocol

import google_crc32c

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import error_pb2
from taskraft_service.access.caller import Caller
from taskraft_service.api.rpc.methods import MessageStream, parse_request
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.machine.apply_notifier import ApplyNotifier
from taskraft_service.storage.snapshot import RocksSnapshot, SnapshotUnsupported

PIECE_BYTES: Final = 256 << 10
RATE_BYTES_PER_SECOND: Final = 64 << 20
"""Rate limit of one transfer, which leaves bandwidth of the disk and the network for other work."""
KEEP_SECONDS: Final = 300.0
"""Time for which a snapshot is kept after its last transfer."""
KEPT_MAX: Final = 4
CHOKED_PAUSE_SECONDS: Final = 0.05


class SnapshotMachine(Protocol):
    """The state machine, as a source of snapshots."""

    @property
    def is_choked(self) -> bool:
        """Return whether ``collect`` would block until the disk catches up."""

    def collect(self) -> None:
        """Write all applied changes to the database."""

    def open_snapshot(self) -> RocksSnapshot:
        """Freeze the written changes; runs on a worker thread."""


@dataclass(slots=True, frozen=True)
class SnapshotOrigin:
    """The cluster, the node and the version that the header of a snapshot contains."""

    cluster_id: str
    node: str
    version: str


class _KeptSnapshot:
    """A snapshot with its number of transfers, and the timer that ends it."""

    def __init__(self, header: pb.SnapshotHeader, content: RocksSnapshot) -> None:
        self.header = header
        self.content = content
        self.transfers = 0
        self.timer: asyncio.TimerHandle | None = None


class SnapshotTransfers:
    """The handler of SaveSnapshot, with the snapshots that this node keeps.

    Args:
        origin: this node.
        machine: the state machine.
        reader: reads the queue.
        apply_notifier: tells whether this node is stopping.
        term: returns the Raft term of this node.
    """

    def __init__(
        self,
        origin: SnapshotOrigin,
        machine: SnapshotMachine,
        reader: QueueReader,
        apply_notifier: ApplyNotifier,
        term: Callable[[], int],
    ) -> None:
        self._origin = origin
        self._machine = machine
        self._reader = reader
        self._apply_notifier = apply_notifier
        self._term = term
        self._kept: dict[str, _KeptSnapshot] = {}
        self._opening = 0

    async def save(self, raw: bytes, stream: MessageStream, caller: Caller) -> None:
        """Stream a new snapshot, or the rest of a kept one."""
        request = parse_request(pb.SaveSnapshotRequest, raw)
        caller.authorize(request)
        _check(request)
        kept = self._find(request) if request.snapshot_id else await self._open(request)
        async with AsyncExitStack() as stack:
            kept.transfers += 1
            stack.callback(self._leave, kept)
            if kept.timer is not None:
                kept.timer.cancel()
                kept.timer = None
            await stream.write(pb.SaveSnapshotResponse(header=kept.header).SerializeToString())
            await self._send(kept, request, stream, caller)

    async def _send(
        self,
        kept: _KeptSnapshot,
        request: pb.SaveSnapshotRequest,
        stream: MessageStream,
        caller: Caller,
    ) -> None:
        """Send the content from the requested offset on, at the limited rate."""
        loop = asyncio.get_running_loop()
        began, offset = loop.time(), request.offset
        while offset < kept.header.content_bytes:
            if self._apply_notifier.ended:
                raise CallRefused(error_pb2.Error.DRAINING, "this node is stopping")
            if caller.is_restricted:
                caller.revalidate()
                caller.authorize(request)
            piece = await asyncio.to_thread(kept.content.read, offset, PIECE_BYTES)
            await stream.write(
                pb.SaveSnapshotResponse(
                    content=piece, content_crc32c=google_crc32c.value(piece)
                ).SerializeToString()
            )
            offset += len(piece)
            ahead = (offset - request.offset) / RATE_BYTES_PER_SECOND - (loop.time() - began)
            if ahead > 0:
                await asyncio.sleep(ahead)

    def _find(self, request: pb.SaveSnapshotRequest) -> _KeptSnapshot:
        """Return the snapshot whose transfer continues.

        Raises:
            CallRefused: SNAPSHOT_NOT_FOUND, or INVALID_FIELD for an offset after its end.
        """
        kept = self._kept.get(request.snapshot_id)
        if kept is None:
            raise CallRefused(
                error_pb2.Error.SNAPSHOT_NOT_FOUND,
                f"node {self._origin.node} does not keep this snapshot; save a new one",
                {"snapshot_id": request.snapshot_id},
            )
        violations = Violations()
        violations.check_range("offset", request.offset, 0, kept.header.content_bytes)
        violations.raise_if_any()
        return kept

    async def _open(self, request: pb.SaveSnapshotRequest) -> _KeptSnapshot:
        """Freeze the state, with all entries that the consistency of the request demands.

        Raises:
            CallRefused: LIMIT_REACHED; or NODE_BEHIND, the state is staler than requested, or the
                applied entries cannot be written at the moment.
        """
        self._make_room()
        self._opening += 1
        try:
            needed = (await self._reader.queue(request.consistency)).applied_index
            while self._machine.is_choked:  # noqa: ASYNC110 - the database has no such event
                await asyncio.sleep(CHOKED_PAUSE_SECONDS)
            self._machine.collect()
            content = await self._freeze()
            if content.index < needed:
                await asyncio.to_thread(content.close)
                raise CallRefused(
                    error_pb2.Error.NODE_BEHIND,
                    f"node {self._origin.node} cannot write entry {needed} now; retry",
                )
            kept = _KeptSnapshot(self._header(content), content)
            self._kept[kept.header.snapshot_id] = kept
            return kept
        finally:
            self._opening -= 1

    def _make_room(self) -> None:
        """Delete the least recently transferred snapshot if too many snapshots are kept.

        Raises:
            CallRefused: LIMIT_REACHED, too many snapshots are being transferred.
        """
        if len(self._kept) + self._opening < KEPT_MAX:
            return
        idle = [kept for kept in self._kept.values() if kept.timer is not None]
        if not idle:
            raise CallRefused(
                error_pb2.Error.LIMIT_REACHED,
                f"node {self._origin.node} sends {KEPT_MAX} snapshots already; ask another node, "
                f"or retry later",
                {"limit": "snapshots", "value": str(KEPT_MAX)},
            )
        oldest = min(idle, key=lambda kept: kept.timer.when() if kept.timer else 0.0)
        if oldest.timer is not None:
            oldest.timer.cancel()
        self._forget(oldest)

    async def _freeze(self) -> RocksSnapshot:
        try:
            return await asyncio.to_thread(self._machine.open_snapshot)
        except SnapshotUnsupported as error:
            raise CallRefused(error_pb2.Error.NOT_IMPLEMENTED, str(error)) from error

    def _header(self, content: RocksSnapshot) -> pb.SnapshotHeader:
        return pb.SnapshotHeader(
            snapshot_id=uuid.uuid4().hex,
            cluster_id=self._origin.cluster_id,
            node=self._origin.node,
            index=content.index,
            term=self._term(),
            taken_at_ms=self._reader.wall_now_ms(),
            version=self._origin.version,
            content_bytes=content.content_bytes,
        )

    def _leave(self, kept: _KeptSnapshot) -> None:
        """Keep a snapshot for some time after its last transfer."""
        kept.transfers -= 1
        if not kept.transfers:
            loop = asyncio.get_running_loop()
            kept.timer = loop.call_later(KEEP_SECONDS, self._forget, kept)

    def _forget(self, kept: _KeptSnapshot) -> None:
        del self._kept[kept.header.snapshot_id]
        # The next start of the node deletes the files if this thread does not run any more.
        asyncio.get_running_loop().run_in_executor(None, kept.content.close)


def _check(request: pb.SaveSnapshotRequest) -> None:
    """Check a request.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_consistency(request.consistency)
    violations.check_not_negative("offset", request.offset)
    if request.offset and not request.snapshot_id:
        violations.add("offset", f"{request.offset} is not 0, where a new snapshot begins")
    violations.raise_if_any()
