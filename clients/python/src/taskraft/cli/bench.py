"""The command ``taskraft bench``: a small load test with latencies."""

from __future__ import annotations

import math
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import click

from taskraft.cli.options import cluster_options, connect, examples, output_option
from taskraft.cli.output_shape import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskraft import Client
    from taskraft._sync_tube import Tube

BAR_CHARACTERS = 40
COLUMNS: Final = (
    *("name", "tasks", "calls", "tasks_per_second", "p50_ms", "p95_ms", "p99_ms", "max_ms"),
)


@dataclass(slots=True)
class Measurement:
    """Latencies of the calls of one operation."""

    name: str
    tasks: int = 0
    seconds: float = 0.0
    """Duration of the phase with this operation."""
    latencies_ms: list[float] = field(default_factory=list)
    """Latency of each call, in ms."""

    def percentile(self, share: float) -> float:
        """Return the latency that a share of the calls did not exceed, in ms; 0 without calls."""
        ordered = sorted(self.latencies_ms)
        return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0

    def value(self) -> dict[str, Any]:
        """Return the measurement in its JSON form."""
        return {
            "name": self.name,
            "tasks": self.tasks,
            "calls": len(self.latencies_ms),
            "tasks_per_second": round(self.tasks / self.seconds, 1) if self.seconds else 0.0,
            "p50_ms": round(self.percentile(0.5), 3),
            "p95_ms": round(self.percentile(0.95), 3),
            "p99_ms": round(self.percentile(0.99), 3),
            "max_ms": round(self.percentile(1), 3),
            "histogram": self.histogram(),
        }

    def histogram(self) -> dict[str, int]:
        """Return the number of calls by the upper bound of their latency in ms: powers of 2."""
        bounds = Counter(
            2.0 ** math.ceil(math.log2(max(each, 0.001))) for each in self.latencies_ms
        )
        return {f"{bound:g}": bounds[bound] for bound in sorted(bounds)}


@click.command(
    epilog=examples("taskraft bench", "taskraft bench --tasks 50000 --batch 500 -o json")
)
@click.option(
    "--tasks", type=click.IntRange(1), default=5_000, show_default=True, help="Number of tasks."
)
@click.option(
    "--batch", type=click.IntRange(1, 1_000), default=100, show_default=True, help="Tasks per call."
)
@click.option(
    "--clients",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Concurrent callers.",
)
@click.option(
    "--size",
    type=click.IntRange(0, 1 << 20),
    default=100,
    show_default=True,
    help="Bytes of a payload.",
)
@output_option(fields(*COLUMNS, "histogram"))
@cluster_options
def bench(
    *,
    tasks: int,
    batch: int,
    clients: int,
    size: int,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Measure puts, takes and acknowledgements on a tube of its own.

    The command creates a tube named bench-..., and drops the tube at the end. The load slows down
    other clients of the cluster.
    """
    from taskraft.cli.output import write_table, write_values
    from taskraft.cli.progress import WorkProgress

    name = f"bench-{uuid.uuid4().hex}"
    with connect(target, timeout) as client:
        client.create_tube(name, "fifo")
        try:
            with WorkProgress("measuring", 2 * tasks) as progress:
                payload = b"x" * size
                measured = _measure(
                    client, client.tube(name), tasks, batch, clients, payload, progress.advance
                )
        finally:
            client.drop_tube(name, force=True)
    values = [each.value() for each in measured]
    if write_values(values, output):
        return
    write_table(
        [each.upper() for each in COLUMNS], ([one[each] for each in COLUMNS] for one in values)
    )
    for one in measured:
        _print_histogram(one)


def _measure(
    client: Client,
    tube: Tube,
    tasks: int,
    batch: int,
    clients: int,
    payload: bytes,
    report: Callable[[int], None],
) -> list[Measurement]:
    """Put all tasks, then take and acknowledge them, with concurrent callers.

    Each task is reported twice: after the put and after the acknowledgement.
    """
    put, take, ack = Measurement("put"), Measurement("take"), Measurement("ack")
    sizes = [min(batch, tasks - first) for first in range(0, tasks, batch)]

    def timed(measurement: Measurement, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - result of any call
        began = perf_counter()
        result = call()
        measurement.latencies_ms.append((perf_counter() - began) * 1_000)
        return result

    def put_some(count: int) -> int:
        timed(put, lambda: tube.put_many([payload] * count))
        report(count)
        return count

    def drain() -> int:
        count = 0
        while taken := timed(take, lambda: tube.take_many(batch, wait=0, session=False)):
            tokens = [each.token for each in taken]
            timed(ack, partial(client.settle, tokens))
            report(len(taken))
            count += len(taken)
        return count

    with ThreadPoolExecutor(clients) as pool:
        began = perf_counter()
        put.tasks = sum(pool.map(put_some, sizes))
        put.seconds = perf_counter() - began
        began = perf_counter()
        futures = [pool.submit(drain) for _ in range(clients)]
        take.tasks = ack.tasks = sum(future.result() for future in futures)
        take.seconds = ack.seconds = perf_counter() - began
    return [put, take, ack]


def _print_histogram(measured: Measurement) -> None:
    counts = measured.histogram()
    most = max(counts.values(), default=1)
    click.echo(f"\n{measured.name}: calls by latency")
    for bound, count in counts.items():
        click.echo(
            f"  <= {bound:>8} ms {count:>8} {'#' * math.ceil(count / most * BAR_CHARACTERS)}"
        )
