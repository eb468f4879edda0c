"""Decode the commands on sessions, leaderships, the feed, counted calls and the wall offset."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import session_service_pb2
from taskraft_service.command_codecs.command_codec import V1, CommandCodec
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.limits import SESSION_TTR_DEFAULT_MS
from taskraft_service.queue.operations.feed import TrimFeed
from taskraft_service.queue.operations.leadership import (
    NoteCalls,
    NotedCalls,
    SetClusterVersion,
    SetWallOffset,
    Startup,
)
from taskraft_service.queue.operations.sessions import (
    AttachSession,
    CloseSession,
    KeepSessions,
    OpenSession,
)
from taskraft_service.stubs.log.v1 import log_pb2


def _open_session(drawn: log_pb2.OpenSession, _raw: bytes, key: RequestKey) -> OpenSession:
    request = drawn.request
    ttr_ms = 0 if drawn.ends_with_stream else request.ttr_ms or SESSION_TTR_DEFAULT_MS
    return OpenSession(
        drawn.session_id,
        request.name,
        ttr_ms,
        key.scope + request.request_id,
        key.hash,
        drawn.as_settings,
        drawn.owner,
        tuple(sorted(request.labels.items())),
    )


def _keep_sessions(
    request: session_service_pb2.KeepSessionsRequest, _raw: bytes, _key: RequestKey
) -> KeepSessions:
    return KeepSessions(list(request.session_ids))


def _close_session(
    request: session_service_pb2.CloseSessionRequest, _raw: bytes, key: RequestKey
) -> CloseSession:
    return CloseSession(
        request.session_id, request.uncounted, key.scope + request.request_id, key.hash
    )


def _attach_session(message: log_pb2.AttachSession, _raw: bytes, _key: RequestKey) -> AttachSession:
    return AttachSession(message.session_id, message.attached)


def _startup(message: log_pb2.Startup, _raw: bytes, _key: RequestKey) -> Startup:
    return Startup(
        member_id=message.member_id,
        failover_grace_ms=message.failover_grace_ms,
        feed_id=message.feed_id,
        feed_partitions=message.feed_partitions,
        clock_epoch=message.clock_epoch,
        clock_term=message.clock_term,
    )


def _trim_feed(message: log_pb2.TrimFeed, _raw: bytes, _key: RequestKey) -> TrimFeed:
    return TrimFeed(dict(message.low_seq))


def _note_calls(message: log_pb2.NoteCalls, _raw: bytes, _key: RequestKey) -> NoteCalls:
    return NoteCalls(
        [NotedCalls(one.tube, one.take_timeouts, one.peeks, one.metas) for one in message.tubes]
    )


def _set_wall_offset(
    message: log_pb2.SetWallOffset, _raw: bytes, _key: RequestKey
) -> SetWallOffset:
    return SetWallOffset(message.wall_offset_ms)


def _set_cluster_version(
    message: log_pb2.SetClusterVersion, _raw: bytes, _key: RequestKey
) -> SetClusterVersion:
    return SetClusterVersion(message.version, message.planned)


OPEN_SESSION: Final = CommandCodec("open_session", log_pb2.OpenSession, _open_session, V1)
KEEP_SESSIONS: Final = CommandCodec(
    "keep_sessions", session_service_pb2.KeepSessionsRequest, _keep_sessions, V1
)
CLOSE_SESSION: Final = CommandCodec(
    "close_session", session_service_pb2.CloseSessionRequest, _close_session, V1
)
ATTACH_SESSION: Final = CommandCodec("attach_session", log_pb2.AttachSession, _attach_session, V1)
STARTUP: Final = CommandCodec("startup", log_pb2.Startup, _startup, V1)
TRIM_FEED: Final = CommandCodec("trim_feed", log_pb2.TrimFeed, _trim_feed, V1)
NOTE_CALLS: Final = CommandCodec("note_calls", log_pb2.NoteCalls, _note_calls, V1)
SET_CLUSTER_VERSION: Final = CommandCodec(
    "set_cluster_version", log_pb2.SetClusterVersion, _set_cluster_version, V1
)
SET_WALL_OFFSET: Final = CommandCodec(
    "set_wall_offset", log_pb2.SetWallOffset, _set_wall_offset, V1
)
