"""Measure the speed at which real nodes serve the history of a slow, a usual and a busy queue.

Each rate gets a new cluster of three nodes, which shares the machine with the reader. The program
puts tasks at the rate and takes none. Then it reads all events, repeatedly until a read has
``--rows`` events: into record batches in this process, and with ``--spark`` also with Spark, on one
core and on two, all columns and three columns. ``--journal`` also exports the events into a
journal, once per round, on two cores.

The table has one line per way of reading: events per second, and the CPU time of reader and nodes
per event, as medians of some rounds. The reader includes the JVM and the Python processes of Spark.
The last columns are latencies of puts beside the reads of Spark, from a client that puts one task
at a time: median and 99th percentile, in ms. The line "no read" shows them without a read.

    python -m bench.history_read [--rates 40 450 14000] [--seconds 20] [--spark] [--journal]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import grpc

from bench.__main__ import fresh_nodes
from bench.catch_up import BASELINE_PUTS, TUBE, BackgroundPuts
from bench.chunk_decoding import FEW
from bench.machine import TICKS_PER_SECOND, descendants_ticks, process_ticks
from bench.percentiles import median_and_p99
from bench.repeated_source import TIMES, RepeatedSource
from bench.servers import Server
from taskraft import Client
from taskraft.v1 import task_service_pb2_grpc
from taskraft_pipeline.feed import FeedNodes, RangeReader, describe
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.journal import export as exporting
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.offsets import Offset, Range
from taskraft_pipeline.options import parse
from taskraft_pipeline.reader import plan, read_partition
from taskraft_pipeline.schema import COLUMNS
from taskraft_pipeline.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from taskraft_pipeline.journal.batch_writer import PublishedBatch

NODES: Final = 3
TASKS_PER_PUT: Final = 100
"""Maximum number of tasks of one put; a slower rate puts single tasks."""
PUTS_PER_SECOND_MAX: Final = 500
PAYLOAD: Final = b"x" * 100
HEAD: Final = (
    f"{'tasks/s':>8}  {'read':<22}{'events/s':>11}{'reader µs':>11}{'nodes µs':>10}"
    f"{'put p50':>9}{'put p99':>9}"
)


@dataclass(slots=True, frozen=True)
class History:
    """The feed of a cluster: its nodes, and the range to read."""

    target: str
    servers: Sequence[Server]
    end: Offset
    ranges: tuple[Range, ...]

    @property
    def events(self) -> int:
        """Number of events of one read of the range."""
        return sum(one.events for one in self.ranges)

    def options(self, columns: Sequence[str] = tuple(COLUMNS)) -> dict[str, str]:
        """Return the options of the data source for the range."""
        end = json.dumps(self.end.to_json())
        return {"endpoints": self.target, "endingOffsets": end, "columns": ",".join(columns)}

    def nodes_ticks(self) -> int:
        """Return the CPU time of all nodes, in clock ticks."""
        return sum(process_ticks(server.pid) for server in self.servers)


def put_at(target: str, rate: int, seconds: float) -> None:
    """Put tasks at a rate in tasks per second."""
    tasks = 1 if rate <= PUTS_PER_SECOND_MAX else TASKS_PER_PUT
    with Client(target) as client:
        client.ensure_tube(TUBE)
        tube = client.tube(TUBE)
        started = time.monotonic()
        for number in range(int(rate * seconds / tasks)):
            time.sleep(max(0.0, started + number * tasks / rate - time.monotonic()))
            tube.put_many([PAYLOAD] * tasks)


@contextmanager
def history_of(rate: int, seconds: float) -> Iterator[History]:
    """Run a new cluster with the events of puts at a rate."""
    with fresh_nodes(NODES) as (target, servers):
        put_at(target, rate, seconds)
        options = parse({"endpoints": target})
        with FeedClient(options.endpoints, options) as client:
            feed = describe(client, is_linearizable=True)
        end = Offset(feed.feed_id, feed.high)
        ranges = (Range(one, feed.low[one], high) for one, high in sorted(feed.high.items()))
        yield History(target, servers, end, tuple(one for one in ranges if one.events))


def messages_of(history: History) -> int:
    """Return the number of messages in which a node sends all events."""
    options = parse({"endpoints": history.target})
    with FeedClient(options.endpoints, options) as client:
        reader = RangeReader(client, history.end.feed_id)
        return sum(1 for whole in history.ranges for _ in reader.read(whole))


def read_here(history: History, columns: Sequence[str], times: int) -> int:
    """Read the range several times into record batches; return the number of events."""
    options = parse(history.options(columns))
    work = plan(options, history.end.feed_id, history.ranges * times, FeedNodes(options.endpoints))
    return sum(batch.num_rows for one in work for batch in read_partition(options, one))


def read_with_spark(
    spark: SparkSession, history: History, columns: Sequence[str], times: int
) -> int:
    """Read the range several times with one query of Spark; return the number of events."""
    spark.dataSource.register(RepeatedSource)
    options = {**history.options(columns), TIMES: str(times)}
    rows = spark.read.format(RepeatedSource.name()).options(**options).load()
    rows.write.format("noop").mode("overwrite").save()
    return history.events * times


def export_journal(spark: SparkSession, history: History) -> int:
    """Export the range into a new journal; return the number of events."""
    options = {"endpoints": history.target, "consumerTtl": "0s"}
    with TemporaryDirectory() as folder:
        journal = Journal.at(f"{folder}/journal")
        with journal.locked():
            exporting.prepare(journal, parse(options))
            published: list[PublishedBatch] = []
            exporting.start(
                spark, journal, options, on_published=published.append
            ).awaitTermination()
    return sum(batch.events for batch in published)


def measure(
    history: History, read: Callable[[], int], rounds: int, puts: BackgroundPuts | None = None
) -> str:
    """Read some rounds after one round to warm up; return the numbers of the line."""
    read()
    found: list[tuple[float, float, float]] = []
    if puts is not None:
        puts.taken()
    for _ in range(rounds):
        nodes, everything, started = (
            history.nodes_ticks(),
            descendants_ticks([server.pid for server in history.servers]),
            time.perf_counter(),
        )
        events = read()
        wall_s = time.perf_counter() - started
        reader = descendants_ticks([server.pid for server in history.servers]) - everything
        us = 1e6 / TICKS_PER_SECOND / events
        found.append((events / wall_s, reader * us, (history.nodes_ticks() - nodes) * us))
    rate, reader_us, nodes_us = (median(column) for column in zip(*found, strict=True))
    return f"{rate:>11,.0f}{reader_us:>11.2f}{nodes_us:>10.2f}{latencies(puts)}"


def latencies(puts: BackgroundPuts | None) -> str:
    """Return median and 99th percentile of the puts since the last call, in ms."""
    found = puts.taken() if puts is not None else []
    if not found:
        return ""
    return "".join(f"{value:>9.1f}" for value in median_and_p99(found))


def print_line(rate: int, title: str, numbers: str) -> None:
    """Print one line of the table."""
    print(f"{rate:>8,}  {title:<22}{numbers}", flush=True)


@contextmanager
def puts_beside(rate: int, history: History) -> Iterator[BackgroundPuts]:
    """Put single tasks from another client; print their latency before the reads."""
    with (
        grpc.insecure_channel(history.target.partition(",")[0]) as channel,
        (puts := BackgroundPuts(task_service_pb2_grpc.TaskServiceStub(channel))).going_on(),
    ):
        puts.wait_for(BASELINE_PUTS)
        print_line(rate, "no read", " " * 32 + latencies(puts))
        yield puts


def measure_spark(rate: int, history: History, times: int, rounds: int) -> None:
    """Print the lines of Spark, with puts of another client beside the reads."""
    with puts_beside(rate, history) as puts:
        for cores in (1, 2):
            with spark_session("bench", f"local[{cores}]") as spark:
                for title, columns in (("all", tuple(COLUMNS)), ("3", FEW)):
                    read = partial(read_with_spark, spark, history, columns, times)
                    numbers = measure(history, read, rounds, puts)
                    print_line(rate, f"Spark, {cores} core, {title}", numbers)


def measure_journal(rate: int, history: History, rounds: int) -> None:
    """Print the line of the journal, with puts of another client beside the exports."""
    with (
        puts_beside(rate, history) as puts,
        spark_session("bench", "local[2]") as spark,
    ):
        numbers = measure(history, partial(export_journal, spark, history), rounds, puts)
        print_line(rate, "journal, 2 cores", numbers)


def main() -> None:
    """Parse the arguments, measure each rate, print the table."""
    parser = argparse.ArgumentParser(description="Measure reads of the history of real nodes.")
    parser.add_argument("--rates", type=int, nargs="+", default=[40, 450, 14_000])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000, help="events of one read, at least")
    parser.add_argument("--spark", action="store_true", help="also read with Spark")
    parser.add_argument("--journal", action="store_true", help="also export into a journal")
    arguments = parser.parse_args()
    print(HEAD)
    for rate in arguments.rates:
        with history_of(rate, arguments.seconds) as history:
            times = -(-arguments.rows // history.events)
            messages = messages_of(history)
            print_line(rate, f"{history.events / messages:,.0f} events/message", "")
            for title, columns in (("all", tuple(COLUMNS)), ("3", FEW)):
                read = partial(read_here, history, columns, times)
                print_line(rate, f"Arrow, {title}", measure(history, read, arguments.rounds))
            if arguments.spark:
                measure_spark(rate, history, times, arguments.rounds)
            if arguments.journal:
                measure_journal(rate, history, arguments.rounds)


if __name__ == "__main__":
    main()
