"""Measure the speed at which real nodes serve the history of a slow, a usual and a busy queue.

Each rate gets a new cluster of three nodes. The program puts tasks at the rate and takes none, then
reads all events into record batches. The read repeats some rounds; the table shows the median. The
nodes share the machine with the reader.

    python -m bench.history_read [--rates 40 450 14000] [--seconds 20] [--rounds 5]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

import pyarrow as pa

from bench.__main__ import fresh_nodes
from bench.machine import TICKS_PER_SECOND, process_ticks
from bench.servers import Server
from taskraft import Client
from taskraft_pipeline.feed import RangeReader, describe
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.offsets import Range
from taskraft_pipeline.options import Options, parse_endpoints
from taskraft_pipeline.reader import ChangesPartition, read_partition

NODES: Final = 3
TASKS_PER_PUT: Final = 100
"""Maximum number of tasks of one put; a slower rate puts single tasks."""
PUTS_PER_SECOND_MAX: Final = 500
PAYLOAD: Final = b"x" * 100


@dataclass(slots=True, frozen=True)
class Reading:
    """One read of the whole feed."""

    rows: int
    messages: int
    wall_s: float
    client_s: float
    server_s: float


def put_at(target: str, rate: int, seconds: float) -> None:
    """Put tasks at a rate in tasks per second."""
    tasks = 1 if rate <= PUTS_PER_SECOND_MAX else TASKS_PER_PUT
    with Client(target) as client:
        client.ensure_tube("history")
        tube = client.tube("history")
        started = time.monotonic()
        for number in range(int(rate * seconds / tasks)):
            time.sleep(max(0.0, started + number * tasks / rate - time.monotonic()))
            tube.put_many([PAYLOAD] * tasks)


def ranges_of(client: FeedClient) -> tuple[str, tuple[Range, ...]]:
    """Return the id of the feed and the ranges of all partitions."""
    feed = describe(client, is_linearizable=True)
    ranges = (Range(one, feed.low[one], high) for one, high in sorted(feed.high.items()))
    return feed.feed_id, tuple(one for one in ranges if one.from_seq < one.to_seq)


def batches_of(options: Options) -> Iterator[pa.RecordBatch]:
    """Yield all events as record batches, as one Spark task would."""
    with FeedClient(options.endpoints, options) as client:
        feed_id, ranges = ranges_of(client)
    yield from read_partition(options, ChangesPartition(feed_id, ranges, options.endpoints, 0))


def messages_of(options: Options) -> int:
    """Return the number of messages in which a node sends all events."""
    with FeedClient(options.endpoints, options) as client:
        feed_id, ranges = ranges_of(client)
        reader = RangeReader(client, feed_id)
        return sum(1 for whole in ranges for _ in reader.read(whole))


def read(options: Options, servers: list[Server], messages: int) -> Reading:
    """Read all events of the feed once."""
    ticks, cpu, started = ticks_of(servers), time.process_time(), time.perf_counter()
    rows = sum(batch.num_rows for batch in batches_of(options))
    wall_s = time.perf_counter() - started
    client_s = time.process_time() - cpu
    return Reading(rows, messages, wall_s, client_s, (ticks_of(servers) - ticks) / TICKS_PER_SECOND)


def ticks_of(servers: list[Server]) -> int:
    """Return the CPU time of all servers, in clock ticks."""
    return sum(process_ticks(server.pid) for server in servers)


def measure(rate: int, seconds: float, rounds: int) -> str:
    """Fill a new cluster at a rate and read it; return the line of the table."""
    with fresh_nodes(NODES) as (target, servers):
        put_at(target, rate, seconds)
        options = Options(endpoints=parse_endpoints(target))
        messages = messages_of(options)
        found = [read(options, servers, messages) for _ in range(rounds)]
    rows = found[0].rows
    wall_s = median(one.wall_s for one in found)
    client_us = 1e6 * median(one.client_s for one in found) / rows
    server_us = 1e6 * sum(one.server_s for one in found) / rounds / rows
    return (
        f"{rate:>10,}{rows:>12,}{rows / messages:>14,.0f}{rows / wall_s:>12,.0f}"
        f"{client_us:>13.2f}{server_us:>13.2f}"
    )


def main() -> None:
    """Parse the arguments, measure each rate, print the table."""
    parser = argparse.ArgumentParser(description="Measure reads of the history of real nodes.")
    parser.add_argument("--rates", type=int, nargs="+", default=[40, 450, 14_000])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'tasks/s':>10}{'events':>12}{'events/message':>14}{'events/s':>12}", end="")
    print(f"{'client µs':>13}{'nodes µs':>13}")
    for rate in arguments.rates:
        print(measure(rate, arguments.seconds, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()
