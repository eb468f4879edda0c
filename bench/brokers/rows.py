"""Define the rows of the comparison with brokers: a cell of ours, and a workload of theirs."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.cells import Cell


@dataclass(frozen=True, slots=True)
class Row:
    """One row: what is measured of us and of a broker."""

    title: str
    cell: Cell
    workload: str
    """Workload of the harness: "put", "take", "saturated" or "rate"."""
    shape: str
    """Shape of the harness: "a", "b" or "c"."""

    @property
    def is_latency(self) -> bool:
        """Whether the row compares the latency of deliveries instead of rates."""
        return self.workload == "rate"


ROWS: Final = (
    Row("(a) put", Cell("put", "sequence"), "put", "a"),
    Row("(b) put", Cell("put", "clients"), "put", "b"),
    Row("(b) take + ack, streams", Cell("take", "clients", "stream"), "take", "b"),
    Row("(c) put", Cell("put", "batches"), "put", "c"),
    Row("(c) take + ack, streams", Cell("take", "batches", "stream"), "take", "c"),
    Row("(c) put + take + ack", Cell("cycle", "batches", "stream"), "saturated", "c"),
    Row("500 puts/s, delivery", Cell("mixed", "clients", "stream"), "rate", ""),
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement of one row."""

    per_second: float
    p50_ms: float
    p99_ms: float
    server_cpu_ms: float
    """CPU time of all nodes per 1 000 tasks."""
    generator_cpu_ms: float
    """CPU time of the load generator per 1 000 tasks."""
    is_doubtful: bool
    """Whether other programs used more than 5 % of the machine."""

    def value(self, row: Row, *, percentile: int = 50) -> float:
        """Return the number that the row compares."""
        if not row.is_latency:
            return self.per_second
        return self.p50_ms if percentile == 50 else self.p99_ms


def ratio(row: Row, ours: list[Measurement], theirs: list[Measurement], percentile: int) -> float:
    """Return the ratio of the medians, ours to theirs; a latency below 1 is better."""
    numbers = [
        median([one.value(row, percentile=percentile) for one in side]) for side in (ours, theirs)
    ]
    return numbers[0] / numbers[1] if numbers[1] else 0.0
