"""Serve a history over gRPC like a cluster, with faults on request."""

from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Self

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from taskraft.v1 import feed_service_pb2 as pb
from taskraft.v1 import feed_service_pb2_grpc
from tests.pipeline.history import Event, encoded


class Feed:
    """State that all nodes serve: the partitions, and the cursors of consumers."""

    def __init__(self, events: list[Event], feed_id: str = "feed-1") -> None:
        self.feed_id = feed_id
        self.partitions: dict[int, list[Event]] = {}
        self.low: dict[int, int] = {}
        self.cursors: list[tuple[str, dict[int, int]]] = []
        self.append(events)

    def append(self, events: list[Event]) -> None:
        """Add events; their sequence numbers must continue the existing ones."""
        for event in events:
            known = self.partitions.setdefault(event.partition, [])
            assert event.seq == len(known)
            known.append(event)
        for partition in self.partitions:
            self.low.setdefault(partition, 0)

    @property
    def high(self) -> dict[int, int]:
        return {partition: len(known) for partition, known in self.partitions.items()}

    @property
    def events(self) -> int:
        return sum(self.high.values())


class Node(feed_service_pb2_grpc.FeedServiceServicer):
    """One node. The attributes are its faults; they apply until a test resets them.

    Attributes:
        applied: by partition, the end that this node has applied, if it lags.
        dies_after: number of chunks after which the node is dead: all calls end as UNAVAILABLE.
        drops_event: leave out the last event of each chunk, but count it.
        ends_early: end a range one chunk too early.
        has_cursors: whether CommitCursor is implemented.
        on_chunk: called before each chunk.
        edit: changes each chunk before it is sent.
    """

    def __init__(self, feed: Feed, events_per_chunk: int) -> None:
        self.feed = feed
        self.events_per_chunk = events_per_chunk
        self.applied: dict[int, int] | None = None
        self.dies_after: int | None = None
        self.drops_event = False
        self.ends_early = False
        self.has_cursors = True
        self.on_chunk: Callable[[], None] = lambda: None
        self.edit: Callable[[pb.ReadChangesResponse], object] = lambda chunk: None
        self.addresses: list[str] = []
        self.chunks = 0
        self.describes = 0
        self.reads: list[pb.ReadChangesRequest] = []
        self.server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        feed_service_pb2_grpc.add_FeedServiceServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def DescribeFeed(  # noqa: N802 - gRPC's name
        self, request: pb.DescribeFeedRequest, context: grpc.ServicerContext
    ) -> pb.DescribeFeedResponse:
        self._check_alive(context)
        self.describes += 1
        high = self.applied or self.feed.high
        return pb.DescribeFeedResponse(
            feed_id=self.feed.feed_id,
            revision=1_000,
            partitions=[
                pb.FeedPartition(partition=one, low_seq=self.feed.low[one], high_seq=high[one])
                for one in sorted(self.feed.partitions)
            ],
            nodes=[
                pb.FeedNode(name=f"n{number}", address=address, leader=number == 1)
                for number, address in enumerate(self.addresses, start=1)
            ],
            now_ms=1_780_000_999_999,
        )

    def ReadChanges(  # noqa: N802 - gRPC's name
        self, request: pb.ReadChangesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ReadChangesResponse]:
        self.reads.append(request)
        self._admit(request, context)
        known = self.feed.partitions[request.partition]
        position = request.from_seq
        end = request.to_seq
        if self.ends_early:
            end -= 1
        while position < end:
            self._check_alive(context)
            self.chunks += 1
            self.on_chunk()
            next_seq = min(position + self.events_per_chunk, end)
            events = known[position:next_seq]
            if request.tubes:
                events = [event for event in events if event.tube in request.tubes]
            if request.kinds:
                events = [event for event in events if event.kind in request.kinds]
            if self.drops_event:
                events = events[:-1]
            chunk = pb.ReadChangesResponse(
                partition=request.partition,
                from_seq=position,
                next_seq=next_seq,
                rows=len(events),
                columns=encoded(events, is_filtered=bool(request.tubes or request.kinds)),
            )
            self.edit(chunk)
            yield chunk
            position = next_seq

    def CommitCursor(  # noqa: N802 - gRPC's name
        self, request: pb.CommitCursorRequest, context: grpc.ServicerContext
    ) -> pb.CommitCursorResponse:
        self._check_alive(context)
        if not self.has_cursors:
            refuse(context, grpc.StatusCode.UNIMPLEMENTED, "NOT_IMPLEMENTED")
        assert request.client_id == request.consumer, "the scope of the request_id"
        self.feed.cursors.append((request.consumer, dict(request.cursor.next_seq)))
        return pb.CommitCursorResponse(revision=1_000)

    @property
    def is_dead(self) -> bool:
        return self.dies_after is not None and self.chunks >= self.dies_after

    def _check_alive(self, context: grpc.ServicerContext) -> None:
        """End the call as UNAVAILABLE if the node is dead.

        The gRPC server of a dead node keeps running. Earlier, each handler stopped the server of
        its own node, and the process could hang when several handlers did so together.
        """
        if self.is_dead:
            context.abort(grpc.StatusCode.UNAVAILABLE, "killed")

    def _admit(self, request: pb.ReadChangesRequest, context: grpc.ServicerContext) -> None:
        if request.feed_id not in {"", self.feed.feed_id}:
            refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "FEED_MISMATCH")
        low = self.feed.low[request.partition]
        if request.from_seq < low:
            refuse(context, grpc.StatusCode.OUT_OF_RANGE, "CURSOR_TRIMMED", low=str(low))
        applied = (self.applied or self.feed.high)[request.partition]
        if request.to_seq > applied:
            refuse(context, grpc.StatusCode.UNAVAILABLE, "NODE_BEHIND")


def refuse(
    context: grpc.ServicerContext, code: grpc.StatusCode, reason: str, **metadata: str
) -> None:
    """End a call with a reason, as the service does."""
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="taskraft.v1", metadata=metadata))
    status = status_pb2.Status(code=code.value[0], message=reason.lower(), details=[detail])
    context.abort_with_status(rpc_status.to_status(status))


class FeedServer:
    """The feed of a cluster on loopback; a context manager that stops it."""

    def __init__(
        self, events: list[Event], *, nodes: int = 1, events_per_chunk: int = 1_000
    ) -> None:
        self.feed = Feed(events)
        self.nodes = [Node(self.feed, events_per_chunk) for _ in range(nodes)]
        for node in self.nodes:
            node.addresses = [other.address for other in self.nodes]

    def __enter__(self) -> Self:
        for node in self.nodes:
            node.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        for stopped in [node.server.stop(0) for node in self.nodes]:
            stopped.wait()

    @property
    def endpoints(self) -> str:
        return ",".join(node.address for node in self.nodes)
