"""Serve the events of a simulated day over gRPC, as a node serves its change feed."""

from __future__ import annotations

import time
from concurrent import futures
from typing import TYPE_CHECKING, Any, Final, Self

import grpc

from demo.simulated_day import DAY_MS, START_MS
from taskraft.v1 import feed_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from demo.day_events import DayEvents

SERVICE: Final = pb.DESCRIPTOR.services_by_name["FeedService"].full_name
CHUNK_EVENTS: Final = 20_000
"""Number of events in one message, so that the message stays below 4 MiB."""
STOP_SECONDS: Final = 5


class SimulatedFeed:
    """One node with a feed that no longer grows; a context manager that stops its server."""

    def __init__(self, day: DayEvents) -> None:
        self._day = day
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(SERVICE, self._handlers())]
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._feed_id = f"simulated-{time.time_ns()}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(STOP_SECONDS).wait()

    def _handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        return {
            "DescribeFeed": grpc.unary_unary_rpc_method_handler(
                self._describe,
                request_deserializer=pb.DescribeFeedRequest.FromString,
                response_serializer=pb.DescribeFeedResponse.SerializeToString,
            ),
            "ReadChanges": grpc.unary_stream_rpc_method_handler(
                self._read,
                request_deserializer=pb.ReadChangesRequest.FromString,
                response_serializer=pb.ReadChangesResponse.SerializeToString,
            ),
            "CommitCursor": grpc.unary_unary_rpc_method_handler(
                self._commit,
                request_deserializer=pb.CommitCursorRequest.FromString,
                response_serializer=pb.CommitCursorResponse.SerializeToString,
            ),
        }

    def _describe(
        self, _: pb.DescribeFeedRequest, __: grpc.ServicerContext
    ) -> pb.DescribeFeedResponse:
        """Return the range of each partition."""
        return pb.DescribeFeedResponse(
            feed_id=self._feed_id,
            revision=10 + self._day.events,
            partitions=[
                pb.FeedPartition(partition=one, low_seq=0, high_seq=len(columns["at_ms"]))
                for one, columns in enumerate(self._day.partitions)
            ],
            nodes=[pb.FeedNode(name="n1", address=self.address, leader=True)],
            now_ms=START_MS + DAY_MS,
        )

    def _read(
        self, request: pb.ReadChangesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ReadChangesResponse]:
        """Return the events of a range in chunks; a filter by tube is refused."""
        if request.tubes or request.feed_id not in {"", self._feed_id}:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no filter, and no other feed")
        for first in range(request.from_seq, request.to_seq, CHUNK_EVENTS):
            last = min(first + CHUNK_EVENTS, request.to_seq)
            yield pb.ReadChangesResponse(
                partition=request.partition,
                from_seq=first,
                next_seq=last,
                rows=last - first,
                columns=self._day.encoded(request.partition, first, last),
            )

    def _commit(
        self, _: pb.CommitCursorRequest, __: grpc.ServicerContext
    ) -> pb.CommitCursorResponse:
        """Accept the progress of a consumer; the feed removes no event."""
        return pb.CommitCursorResponse(revision=10 + self._day.events)
