"""Decode the commit of a feed consumer's cursor."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import feed_service_pb2
from taskraft_service.command_codecs.command_codec import V1, CommandCodec
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.limits import CONSUMER_IDLE_TTL_DEFAULT_MS
from taskraft_service.queue.operations.feed import CommitCursor


def _commit_cursor(
    request: feed_service_pb2.CommitCursorRequest, _raw: bytes, key: RequestKey
) -> CommitCursor:
    has_cursor = request.HasField("cursor")
    return CommitCursor(
        request.consumer,
        request.cursor.feed_id,
        dict(request.cursor.next_seq) if has_cursor else None,
        request.idle_ttl_ms or CONSUMER_IDLE_TTL_DEFAULT_MS,
        key.scope + request.request_id,
        key.hash,
        key.owner.principal,
    )


COMMIT_CURSOR: Final = CommandCodec(
    "commit_cursor", feed_service_pb2.CommitCursorRequest, _commit_cursor, V1
)
