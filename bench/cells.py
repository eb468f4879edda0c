"""Define the cells of the benchmark: combinations of a workload and a shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Workload: TypeAlias = Literal["put", "take", "cycle", "mixed"]
Shape: TypeAlias = Literal["sequence", "clients", "batches"]
Consumer: TypeAlias = Literal["unary", "stream"]

TITLES: Final[dict[Workload, str]] = {
    "put": "put",
    "take": "take + ack",
    "cycle": "put + take + ack",
    "mixed": "500 puts a second",
}
SHAPES: Final[dict[Shape, str]] = {
    "sequence": "(a) one client in sequence",
    "clients": "(b) 32 clients, one request in flight each",
    "batches": "(c) batches of 100, 8 in flight on 2 connections",
}


@dataclass(slots=True, frozen=True)
class Cell:
    """One cell of the table."""

    workload: Workload
    shape: Shape
    consumer: Consumer = "unary"

    @property
    def name(self) -> str:
        """Short name, for the option ``--only``."""
        consumer = "-stream" if self.consumer == "stream" else ""
        return f"{self.workload}{consumer}-{self.shape}"

    @property
    def title(self) -> str:
        """Title of the row in the table."""
        if self.workload == "mixed":
            return f"{TITLES[self.workload]}, {self.consumer}"
        letter = SHAPES[self.shape].partition(" ")[0]
        consumer = f", {self.consumer}" if self.workload != "put" else ""
        return f"{letter} {TITLES[self.workload]}{consumer}"


def _all_cells() -> tuple[Cell, ...]:
    shapes: tuple[Shape, ...] = ("sequence", "clients", "batches")
    puts = [Cell("put", shape) for shape in shapes]
    takes = [Cell("take", shape) for shape in shapes]
    streams = [Cell("take", shape, "stream") for shape in shapes]
    cycles = [Cell("cycle", shape) for shape in shapes]
    joined = [Cell("cycle", "clients", "stream"), Cell("cycle", "batches", "stream")]
    return (*puts, *takes, *streams, *cycles, *joined, Cell("mixed", "clients", "stream"))


ALL: Final = _all_cells()

QUICK: Final = (
    Cell("put", "clients"),
    Cell("put", "batches"),
    Cell("take", "batches", "stream"),
    Cell("cycle", "batches", "stream"),
    Cell("mixed", "clients", "stream"),
)

FLOOR: Final = tuple(
    cell
    for cell in ALL
    if cell.workload in {"put", "take"} and cell.shape in {"clients", "batches"}
)
"""Cells that are compared with empty handlers; the other workloads need a queue."""

FLOOR_FILL: Final = 800_000
"""Number of tasks to fill; empty handlers would drain the usual number before the window starts."""
