"""Read a snapshot of the cluster from one node, and continue after a broken connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from taskraft import errors
from taskraft._error_translation import from_rpc_error
from taskraft._stream_retries import StreamRetries
from taskraft.v1 import cluster_service_pb2, task_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import TypeAlias

    from taskraft._connection import Connection

    _Call: TypeAlias = grpc.aio.UnaryStreamCall[
        cluster_service_pb2.SaveSnapshotRequest, cluster_service_pb2.SaveSnapshotResponse
    ]


class _Transfer:
    """The transfer of one snapshot, over any number of attempts.

    Args:
        connection: connection to the cluster.
        request: the request of the next attempt.
        seconds_max: maximum time without progress, in seconds.
    """

    def __init__(
        self,
        connection: Connection,
        request: cluster_service_pb2.SaveSnapshotRequest,
        seconds_max: float,
    ) -> None:
        self._connection = connection
        self._request = request
        self._retries = StreamRetries(seconds_max)
        self._is_continued = bool(request.snapshot_id)
        self._others = set(connection.nodes.selector.addresses)
        """Nodes that may keep the snapshot of an earlier transfer."""
        self._node = connection.nodes.next_node()
        self._header: cluster_service_pb2.SnapshotHeader | None = None
        self.is_complete = False
        """Whether the whole content and the digest have arrived."""

    async def attempt(self) -> AsyncIterator[cluster_service_pb2.SaveSnapshotResponse]:
        """Yield the messages of one attempt; the header is yielded only once.

        A server without digests ends the stream after the content.
        """
        call = self._node.cluster.SaveSnapshot(self._request)
        try:
            while (message := await self._read(call)) is not None:
                if self._header is None:
                    self._header = message.header
                    self._request.snapshot_id = message.header.snapshot_id
                elif message.content:
                    self._request.offset += len(message.content)
                elif message.HasField("digest"):
                    self.is_complete = True
                else:
                    continue  # the header of a continued transfer
                yield message
                self._retries.progressed()
        finally:
            call.cancel()
        self.is_complete = self.is_complete or self._has_content

    async def _read(self, call: _Call) -> cluster_service_pb2.SaveSnapshotResponse | None:
        """Return the next message.

        The node may need minutes for the digests of a large state, and sends nothing meanwhile.
        """
        return await self._retries.read(call, self._node.address, is_limited=not self._has_content)

    @property
    def _has_content(self) -> bool:
        """Return whether the whole content has arrived."""
        return self._header is not None and self._request.offset == self._header.content_bytes

    async def prepare_next(self, error: errors.TaskraftError) -> None:
        """Choose the next node, and wait.

        Raises:
            TaskraftError: the error is not retryable, or the time limit has passed.
        """
        nodes = self._connection.nodes
        if self._header is None and self._is_continued:
            self._others.discard(self._node.address)
            if self._others:
                self._node = nodes.at(min(self._others))
                return
        await self._retries.pause(error, 1)
        nodes.selector.report_failure(self._node.address, is_unreachable=True)
        if self._header is None and not self._is_continued:
            self._node = nodes.next_node()

    def error_of(self, raised: grpc.aio.AioRpcError) -> errors.TaskraftError:
        """Return the error of an attempt."""
        return from_rpc_error(raised, self._node.address)


async def read_snapshot(
    connection: Connection, *, local: bool, snapshot_id: str, offset: int, seconds_max: float
) -> AsyncIterator[cluster_service_pb2.SaveSnapshotResponse]:
    """Yield the header, then the pieces of the content in order, then the digest.

    A node keeps a snapshot for some minutes, so a broken transfer continues at its offset.

    Args:
        connection: connection to the cluster.
        local: accept the state that the node has applied; works without a majority.
        snapshot_id: snapshot to continue; empty: a new one.
        offset: number of bytes of the content that the caller has.
        seconds_max: maximum time without a piece, in seconds, retries included.

    Raises:
        SnapshotNotFound: no node keeps the snapshot.
        TaskraftError: the last error, after the maximum time without a piece.
    """
    request = cluster_service_pb2.SaveSnapshotRequest(snapshot_id=snapshot_id, offset=offset)
    if local:
        request.consistency.level = task_pb2.Consistency.LOCAL
    transfer = _Transfer(connection, request, seconds_max)
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
