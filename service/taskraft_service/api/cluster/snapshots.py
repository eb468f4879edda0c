"""Handle SaveSnapshot: stream a frozen state, and keep it so that a broken transfer can continue.

A frozen state consists of hard links to files of the database. Keeping a snapshot therefore costs
disk space only for files that the database has replaced since.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import google_crc32c
import structlog

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import error_pb2
from taskraft_service.access.caller import Caller
from taskraft_service.access.permission_rules import managed_names
from taskraft_service.api.rpc.methods import MessageStream, UnaryCall, parse_request
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.kept_snapshots import KeptSnapshot, KeptSnapshots
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.leader.command_submitter import NotProposed, OutcomeUnknown
from taskraft_service.machine.apply_notifier import ApplyNotifier
from taskraft_service.storage.snapshot import RocksSnapshot, SnapshotUnsupported

log: Final = structlog.get_logger(__name__)

PIECE_BYTES: Final = 256 << 10
RATE_BYTES_PER_SECOND: Final = 64 << 20
"""Rate limit of one transfer, which leaves bandwidth of the disk and the network for other work."""
DIGEST_STEPS: Final = 100
DIGEST_PAUSE_SECONDS: Final = 0.15
"""Number of steps of a digest that run together, about 50 ms, and the pause after them: a digest
takes a quarter of a core.
"""
KEEP_SECONDS: Final = 300.0
"""Time for which a snapshot is kept after its last transfer."""
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


class _SavedSnapshot:
    """A frozen state with the header that describes it; its digests are computed meanwhile."""

    def __init__(self, header: pb.SnapshotHeader, content: RocksSnapshot) -> None:
        self.header = header
        self.content = content
        self.close = content.close
        self._digests = asyncio.ensure_future(_digests_of(content))
        self._digests.add_done_callback(_look_at)

    async def digest(self) -> pb.SnapshotDigest:
        """Return the digests, once they are computed."""
        parts = await asyncio.shield(self._digests)
        return pb.SnapshotDigest(version=self.content.digest_version, parts=parts)


async def _digests_of(content: RocksSnapshot) -> Sequence[int]:
    """Return the digests, computed in parts, so that a node that stops waits for one part only."""
    while True:
        parts = await asyncio.to_thread(content.digest_more, DIGEST_STEPS)
        if parts is not None:
            return parts
        await asyncio.sleep(DIGEST_PAUSE_SECONDS)


def _look_at(digests: asyncio.Future[Sequence[int]]) -> None:
    """Retrieve the failure of digests that no transfer awaits, so that asyncio does not log it."""
    if not digests.cancelled():
        digests.exception()


class SnapshotTransfers:
    """The handler of SaveSnapshot, with the snapshots that this node keeps.

    Args:
        origin: this node.
        machine: the state machine.
        reader: reads the queue.
        apply_notifier: tells whether this node is stopping.
        term: returns the Raft term of this node.
        completed: called after the last byte of a snapshot was sent.
        record_act: records a call in the replicated audit, on the leader.
    """

    def __init__(
        self,
        origin: SnapshotOrigin,
        machine: SnapshotMachine,
        reader: QueueReader,
        apply_notifier: ApplyNotifier,
        term: Callable[[], int],
        completed: Callable[[], None],
        record_act: Callable[[UnaryCall[Any]], Awaitable[None]],
    ) -> None:
        self._origin = origin
        self._machine = machine
        self._reader = reader
        self._apply_notifier = apply_notifier
        self._term = term
        self._completed = completed
        self._record_act = record_act
        self._kept: KeptSnapshots[_SavedSnapshot] = KeptSnapshots(origin.node)

    async def save(self, raw: bytes, stream: MessageStream, caller: Caller) -> None:
        """Stream a new snapshot, or the rest of a kept one."""
        request = parse_request(pb.SaveSnapshotRequest, raw)
        managed = caller.authorize(request) or managed_names(request)
        _check(request)
        kept = (
            self._find(request) if request.snapshot_id else await self._open(request, caller.name)
        )
        with self._kept.used(kept, KEEP_SECONDS) as saved:
            # Before the first piece, because a transfer that breaks later has given content away.
            caller.log_managed(request, managed, saved.header.index)
            await self._record(UnaryCall(request, raw, stream.deadline, caller, 0.0, 0, managed))
            await stream.write(pb.SaveSnapshotResponse(header=saved.header).SerializeToString())
            await self._send(saved, request, stream)

    async def _record(self, call: UnaryCall[pb.SaveSnapshotRequest]) -> None:
        """Record a transfer in the replicated audit, if this node leads.

        Only the leader proposes commands, so a transfer from another node is in its audit log only.
        The same holds for a leader without a quorum, whose state must still be saved.
        """
        try:
            await self._record_act(call)
        except (NotProposed, OutcomeUnknown) as error:
            log.info("a transfer may only be in the audit log of this node", reason=str(error))

    async def _send(
        self, saved: _SavedSnapshot, request: pb.SaveSnapshotRequest, stream: MessageStream
    ) -> None:
        """Send the content from the requested offset on, at the limited rate, then the digest."""
        loop = asyncio.get_running_loop()
        began, offset = loop.time(), request.offset
        while offset < saved.header.content_bytes:
            if self._apply_notifier.ended:
                raise CallRefused(error_pb2.Error.DRAINING, "this node is stopping")
            piece = await asyncio.to_thread(saved.content.read, offset, PIECE_BYTES)
            await stream.write(
                pb.SaveSnapshotResponse(
                    content=piece, content_crc32c=google_crc32c.value(piece)
                ).SerializeToString()
            )
            offset += len(piece)
            ahead = (offset - request.offset) / RATE_BYTES_PER_SECOND - (loop.time() - began)
            if ahead > 0:
                await asyncio.sleep(ahead)
        digest = pb.SaveSnapshotResponse(digest=await saved.digest())
        await stream.write(digest.SerializeToString())
        self._completed()

    def _find(self, request: pb.SaveSnapshotRequest) -> KeptSnapshot[_SavedSnapshot]:
        """Return the snapshot whose transfer continues.

        Raises:
            CallRefused: SNAPSHOT_NOT_FOUND, or INVALID_FIELD for an offset after its end.
        """
        kept = self._kept.find(request.snapshot_id)
        violations = Violations()
        violations.check_range("offset", request.offset, 0, kept.content.header.content_bytes)
        violations.raise_if_any()
        return kept

    async def _open(
        self, request: pb.SaveSnapshotRequest, owner: str
    ) -> KeptSnapshot[_SavedSnapshot]:
        """Freeze the state, with all entries that the consistency of the request demands.

        Raises:
            CallRefused: LIMIT_REACHED; or NODE_BEHIND, the state is staler than requested, or the
                applied entries cannot be written at the moment.
        """
        snapshot_id = uuid.uuid4().hex

        async def create() -> _SavedSnapshot:
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
            return _SavedSnapshot(self._header(snapshot_id, content), content)

        return await self._kept.add(snapshot_id, owner, create)

    async def _freeze(self) -> RocksSnapshot:
        try:
            return await asyncio.to_thread(self._machine.open_snapshot)
        except SnapshotUnsupported as error:
            raise CallRefused(error_pb2.Error.NOT_IMPLEMENTED, str(error)) from error

    def _header(self, snapshot_id: str, content: RocksSnapshot) -> pb.SnapshotHeader:
        return pb.SnapshotHeader(
            snapshot_id=snapshot_id,
            cluster_id=self._origin.cluster_id,
            node=self._origin.node,
            index=content.index,
            term=self._term(),
            taken_at_ms=self._reader.wall_now_ms(),
            version=self._origin.version,
            content_bytes=content.content_bytes,
        )


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
