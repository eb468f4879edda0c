"""Act as one client: its own connection, and the stream that keeps its session alive."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from threading import Timer
from typing import Any, Final

import grpc

from taskraft.v1 import (
    cluster_service_pb2_grpc,
    error_pb2,
    feed_service_pb2_grpc,
    session_service_pb2_grpc,
    task_service_pb2_grpc,
    tube_service_pb2_grpc,
)
from taskraft.v1 import task_service_pb2 as pb
from tests.oracle.refusals import CLOSED, NOT_RUNNING, Refused, refused_as, refused_call

CALL_SECONDS: Final = 10.0
BEAT_SECONDS: Final = 10.0
"""Maximum interval between two messages of a session's stream."""
NOTHING: Final = "oracle.nothing.*"
"""A pattern that matches no tube of a trace, so that the stream keeps a session and takes no
tasks."""
OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.max_reconnect_backoff_ms", 200),
)


class Stubs:
    """A channel of its own, with the stubs of all services.

    ``revision`` is the highest log position that any answer contained.
    """

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=OPTIONS)
        self.tasks = task_service_pb2_grpc.TaskServiceStub(self.channel)
        self.tubes = tube_service_pb2_grpc.TubeServiceStub(self.channel)
        self.sessions = session_service_pb2_grpc.SessionServiceStub(self.channel)
        self.feed = feed_service_pb2_grpc.FeedServiceStub(self.channel)
        self.cluster = cluster_service_pb2_grpc.ClusterServiceStub(self.channel)
        self.revision = 0
        self.seconds = CALL_SECONDS

    def call(self, method: Any, request: Any) -> Any:
        """Call a method and record the revision of its answer.

        Raises:
            Refused: the call failed.
        """
        try:
            answer = method(request, timeout=self.seconds, wait_for_ready=True)
        except grpc.RpcError as error:
            raise refused_call(error) from error
        self.note(answer)
        return answer

    def note(self, answer: Any) -> None:
        """Record the revision of an answer."""
        self.revision = max(self.revision, getattr(answer, "revision", 0))

    def close(self) -> None:
        """Close the connection; pending calls are cancelled."""
        self.channel.close()


class SessionStream:
    """A stream that keeps one session attached while it is open.

    Raises:
        Refused: the session does not exist, or the cluster has no leader.
    """

    def __init__(self, stubs: Stubs, session_id: str = "") -> None:
        self._outgoing: queue.SimpleQueue[bool] = queue.SimpleQueue()
        opened = pb.SubscribeRequest.Open(
            sources=[pb.TakeSource(tube=NOTHING)], session_id=session_id
        )
        requests = self._requests(pb.SubscribeRequest(open=opened))
        self._call = stubs.tasks.Subscribe(requests, wait_for_ready=True)
        # The stream stays open, so the deadline applies only to its first message.
        deadline = Timer(stubs.seconds, self._call.cancel)
        deadline.start()
        try:
            first = next(self._call)
        except grpc.RpcError as error:
            refusal = refused_call(error)
            if refusal.error == CLOSED:
                raise Refused(NOT_RUNNING, refusal.reason) from error
            raise refusal from error
        finally:
            deadline.cancel()
        if first.HasField("go_away"):
            name = error_pb2.Error.Reason.Name(first.go_away.error.reason)
            raise refused_as(name, {}, first.go_away.error.message)
        self.session_id: Final[str] = first.opened.session_id

    def _requests(self, first: pb.SubscribeRequest) -> Iterator[pb.SubscribeRequest]:
        yield first
        while True:
            try:
                self._outgoing.get(timeout=BEAT_SECONDS)
            except queue.Empty:
                yield pb.SubscribeRequest(heartbeat=True)
            else:
                return

    def close(self) -> None:
        """Half-close the stream, as a client does when it has finished."""
        self._outgoing.put(True)
        self._call.cancel()


class Connection:
    """One client connection of a trace; it opens a queue session when it needs one."""

    def __init__(self, address: str) -> None:
        self.stubs = Stubs(address)
        self._stream: SessionStream | None = None

    @property
    def session_id(self) -> str:
        """Id of the queue session; a connection that has lost its session opens a new one."""
        if self._stream is None:
            self._stream = SessionStream(self.stubs)
        return self._stream.session_id

    @property
    def known_session_id(self) -> str | None:
        """Id of the queue session; None while there is none."""
        return self._stream.session_id if self._stream else None

    def join(self, session_id: str) -> str | None:
        """Switch to another existing session; return the previous one.

        Raises:
            Refused: the session does not exist; nothing has changed.
        """
        before = self._stream
        if before is not None and before.session_id == session_id:
            return None
        self._stream = SessionStream(self.stubs, session_id)
        if before is None:
            return None
        before.close()
        return before.session_id

    def lose_session(self) -> None:
        """Forget the session, because the leader that knew its stream is gone."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def close(self) -> None:
        """Close the connection, its stream and its blocked calls.

        All three are closed together, because a blocked call must not report that the session of
        the stream has ended.
        """
        self.stubs.close()
        if self._stream is not None:
            self._stream.close()


__all__ = ["CALL_SECONDS", "Connection", "Refused", "SessionStream", "Stubs"]
