"""Read a snapshot of the cluster from one node, and continue after a broken connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import grpc

from taskraft import errors
from taskraft._error_translation import from_rpc_error
from taskraft._leader_caller import pause_seconds
from taskraft.v1 import cluster_service_pb2, task_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from taskraft._connection import Connection

ATTEMPTS_MAX: Final = 20
"""Maximum consecutive attempts without progress; about half a minute."""


class _Transfer:
    """The transfer of one snapshot, over any number of attempts.

    Args:
        connection: connection to the cluster.
        request: the request of the next attempt.
    """

    def __init__(
        self, connection: Connection, request: cluster_service_pb2.SaveSnapshotRequest
    ) -> None:
        self._connection = connection
        self._request = request
        self._is_continued = bool(request.snapshot_id)
        self._others = set(connection.nodes.selector.addresses)
        """Nodes that may keep the snapshot of an earlier transfer."""
        self._node = connection.nodes.next_node()
        self._header: cluster_service_pb2.SnapshotHeader | None = None
        self._failures = 0
        self.is_complete = False
        """Whether the whole content and the digest have arrived."""

    async def attempt(self) -> AsyncIterator[cluster_service_pb2.SaveSnapshotResponse]:
        """Yield the messages of one attempt; the header is yielded only once.

        A server without digests ends the stream after the content.
        """
        async for message in self._node.cluster.SaveSnapshot(self._request):
            if self._header is None:
                self._header = message.header
                self._request.snapshot_id = message.header.snapshot_id
                yield message
            elif message.content:
                self._failures = 0
                self._request.offset += len(message.content)
                yield message
            elif message.HasField("digest"):
                self.is_complete = True
                yield message
        if self._header is not None and self._request.offset == self._header.content_bytes:
            self.is_complete = True

    async def prepare_next(self, error: errors.TaskraftError) -> None:
        """Wait and choose the next node; raise the error if no attempt is left."""
        self._failures += 1
        pause = pause_seconds(error, self._failures, 1)
        nodes = self._connection.nodes
        if self._header is None and self._is_continued:
            self._others.discard(self._node.address)
            if self._others:
                self._node, pause = nodes.at(min(self._others)), 0.0
        if pause is None or self._failures > ATTEMPTS_MAX:
            raise error
        nodes.selector.report_failure(self._node.address, is_unreachable=True)
        if self._header is None and not self._is_continued:
            self._node = nodes.next_node()
        await asyncio.sleep(pause)

    def error_of(self, raised: grpc.aio.AioRpcError) -> errors.TaskraftError:
        """Return the error of an attempt."""
        return from_rpc_error(raised, self._node.address)


async def read_snapshot(
    connection: Connection, *, local: bool, snapshot_id: str, offset: int
) -> AsyncIterator[cluster_service_pb2.SaveSnapshotResponse]:
    """Yield the header, then the pieces of the content in order, then the digest.

    A node keeps a snapshot for some minutes, so a broken transfer continues at its offset.

    Args:
        connection: connection to the cluster.
        local: accept the state that the node has applied; works without a majority.
        snapshot_id: snapshot to continue; empty: a new one.
        offset: number of bytes of the content that the caller has.

    Raises:
        SnapshotNotFound: no node keeps the snapshot.
    """
    request = cluster_service_pb2.SaveSnapshotRequest(snapshot_id=snapshot_id, offset=offset)
    if local:
        request.consistency.level = task_pb2.Consistency.LOCAL
    transfer = _Transfer(connection, request)
    while not transfer.is_complete:
        connection.check_usable()
        error: errors.TaskraftError = errors.Unavailable("the server ended the stream")
        try:
            async for message in transfer.attempt():
                yield message
        except grpc.aio.AioRpcError as raised:
            error = transfer.error_of(raised)
        if not transfer.is_complete:
            await transfer.prepare_next(error)
