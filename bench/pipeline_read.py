"""Measure the speed at which changes become rows: in the codec, over gRPC, and in Spark.

A server in this process sends the same prepared chunk again and again, so only reading takes time.
The program prints thousand events per second: median, minimum and maximum of some rounds. The codec
is measured in CPU time of this process, the rest in wall time. Compare only results of the same
session; across sessions compare ratios.

    python -m bench.pipeline_read [--events 1000000] [--rounds 5] [--spark]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median
from time import perf_counter, process_time
from typing import Final

import grpc
import numpy as np
import pyarrow as pa

from taskraft.v1 import feed_service_pb2 as pb
from taskraft_pipeline.codec import record_batch
from taskraft_pipeline.feed import RangeReader
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.offsets import Range
from taskraft_pipeline.options import Options
from taskraft_pipeline.schema import COLUMNS
from taskraft_pipeline.spark_session import spark_session

CHUNK_EVENTS: Final = 40_000
"""Number of events in about 4 MiB, the largest chunk of the contract."""
MESSAGE_EVENTS: Final = 5_000
PARTITIONS: Final = 4
FEW: Final = ("tube", "kind", "since_ts")
SERVICE: Final = "taskraft.v1.FeedService"
FEED_ID: Final = "bench"
START_MS: Final = 1_780_000_000_000


def columns_of(events: int) -> pb.ChangeColumns:
    """Return columns with 20 tubes and 1 000 other strings, all of them used."""
    rng = np.random.default_rng(1)

    def numbers(kind: str, high: int) -> bytes:
        return rng.integers(1, high, events).astype(kind).tobytes()

    times_ms = START_MS + np.arange(events, dtype="<i8")
    return pb.ChangeColumns(
        revision=np.arange(events, dtype="<i8").tobytes(),
        place=numbers("<i4", 100),
        at_ms=times_ms.tobytes(),
        tube=numbers("<i4", 20),
        tubes=[f"tube-{number}" for number in range(20)],
        task_id=numbers("<i8", 1 << 40),
        kind=numbers("<i1", 5),
        from_state=numbers("<i1", 4),
        to_state=numbers("<i1", 4),
        attempt=numbers("<i4", 4),
        priority=numbers("<i8", 10),
        created_ms=(times_ms - 5_000).tobytes(),
        since_ms=(times_ms - 100).tobytes(),
        subqueue=numbers("<i4", 1_000),
        session=numbers("<i4", 1_000),
        reason=numbers("<i4", 1_000),
        type=numbers("<i4", 1_000),
        payload_bytes=numbers("<i4", 1 << 20),
        outcome=numbers("<i1", 4),
        message=numbers("<i4", 1_000),
        fingerprint=numbers("<i8", 1 << 40),
        target=numbers("<i4", 1_000),
        texts=["", *(f"a text of usual length {number}" for number in range(1_000))],
    )


def messages_of(events: int) -> bytes:
    """Return a chunk with similar content as one message per event."""
    chunk = pb.ReadChangesResponse(next_seq=events, rows=events)
    for seq in range(events):
        chunk.events.add(
            seq=seq, revision=seq, place=1, at_ms=START_MS + seq, tube=f"tube-{seq % 20}",
            task_id=seq, kind=pb.ChangeEvent.TAKE, from_state=1, to_state=3, attempt=1,
            priority=5, created_ms=START_MS, since_ms=START_MS, payload_bytes=100,
            subqueue=f"a text of usual length {seq % 1_000}", session=f"consumer-{seq % 9}",
        )  # fmt: skip
    return chunk.SerializeToString()


class Feed:
    """Serves partitions of a given size from one prepared chunk."""

    def __init__(self, events: int) -> None:
        self.events_each = events // PARTITIONS
        self.columns = columns_of(CHUNK_EVENTS).SerializeToString()

    def describe(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        """Answer DescribeFeed with the partitions of the feed."""
        parts = [
            pb.FeedPartition(partition=number, high_seq=self.events_each)
            for number in range(PARTITIONS)
        ]
        return pb.DescribeFeedResponse(feed_id=FEED_ID, partitions=parts).SerializeToString()

    def read(self, raw: bytes, _context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer ReadChanges with full chunks; the shorter last chunk is made on demand."""
        request = pb.ReadChangesRequest.FromString(raw)
        position = request.from_seq
        while position < request.to_seq:
            events = min(CHUNK_EVENTS, request.to_seq - position)
            head = pb.ReadChangesResponse(
                partition=request.partition,
                from_seq=position,
                next_seq=position + events,
                rows=events,
            )
            if events < CHUNK_EVENTS:
                head.columns.CopyFrom(columns_of(events))
                yield head.SerializeToString()
            else:
                # Field 6, length-delimited: the columns as they were prepared.
                yield head.SerializeToString() + b"\x32" + varint(len(self.columns)) + self.columns
            position += events


def varint(number: int) -> bytes:
    """Return a number in the Protocol Buffers length encoding."""
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


@contextmanager
def served(feed: Feed) -> Iterator[str]:
    """Serve a feed on loopback; yield its address."""
    server = grpc.server(ThreadPoolExecutor(8))
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "DescribeFeed": grpc.unary_unary_rpc_method_handler(feed.describe),
        "ReadChanges": grpc.unary_stream_rpc_method_handler(feed.read),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def measure(
    title: str,
    events: int,
    rounds: int,
    run: Callable[[], object],
    clock: Callable[[], float] = perf_counter,
) -> None:
    """Print median, minimum and maximum of some rounds, after one warm-up round."""
    run()
    seconds = []
    for _ in range(rounds):
        started = clock()
        run()
        seconds.append(clock() - started)
    found = (median(seconds), max(seconds), min(seconds))
    rates = "".join(f"{events / one / 1_000:>10,.0f}" for one in found)
    print(f"{title:<24}{rates}")


def from_messages(data: bytes) -> pa.Table:
    """Build the same table from messages, without the column encoding."""
    chunk = pb.ReadChangesResponse.FromString(data)
    fields = pb.ChangeEvent.DESCRIPTOR.fields
    names = [field.name for field in fields if field.message_type is None]
    return pa.table({name: [getattr(event, name) for event in chunk.events] for name in names})


def measure_codec(rounds: int) -> None:
    """Print the cost of converting bytes into Arrow in one process."""
    chunk = pb.ReadChangesResponse(
        next_seq=CHUNK_EVENTS, rows=CHUNK_EVENTS, columns=columns_of(CHUNK_EVENTS)
    )
    data, messages = chunk.SerializeToString(), messages_of(MESSAGE_EVENTS)

    def decode(columns: tuple[str, ...]) -> None:
        record_batch(pb.ReadChangesResponse.FromString(data), columns)

    everything = tuple(COLUMNS)
    for title, events, run in (
        ("columns to Arrow, all", CHUNK_EVENTS, lambda: decode(everything)),
        ("columns to Arrow, 3", CHUNK_EVENTS, lambda: decode(FEW)),
        ("messages to Arrow", MESSAGE_EVENTS, lambda: from_messages(messages)),
    ):
        measure(title, events, 4 * rounds, run, process_time)


def measure_rpc(address: str, feed: Feed, rounds: int) -> None:
    """Print the cost of reading a partition over gRPC, with the server in the same process."""
    options = Options(endpoints=(address,))
    whole = Range(0, 0, feed.events_each)

    def read() -> None:
        with FeedClient(options.endpoints, options) as client:
            for chunk in RangeReader(client, FEED_ID).read(whole):
                record_batch(chunk, options.columns)

    measure("gRPC to Arrow, all", feed.events_each, rounds, read)


def measure_spark(address: str, feed: Feed, rounds: int) -> None:
    """Print the throughput of Spark."""
    events = feed.events_each * PARTITIONS
    with spark_session("bench") as spark:
        for title, columns in (("all", tuple(COLUMNS)), ("3", FEW)):
            frame = (
                spark.read.format("taskraft")
                .option("endpoints", address)
                .option("columns", ",".join(columns))
                .load()
            )
            run = frame.write.format("noop").mode("overwrite").save
            measure(f"Spark, noop, {title}", events, rounds, run)


def main() -> None:
    """Measure each way of reading, and print the results."""
    parser = argparse.ArgumentParser(description="Measure how fast changes become rows.")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spark", action="store_true", help="also measure Spark")
    arguments = parser.parse_args()
    print(f"{'1000 events/s':<24}{'median':>10}{'min':>10}{'max':>10}")
    measure_codec(arguments.rounds)
    feed = Feed(arguments.events)
    with served(feed) as address:
        measure_rpc(address, feed, arguments.rounds)
        if arguments.spark:
            measure_spark(address, feed, arguments.rounds)


if __name__ == "__main__":
    main()
