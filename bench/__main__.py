"""Measure clusters of one and three nodes through gRPC, and print a table (`make bench`).

Each repetition starts a new cluster of real processes with temporary data on loopback and runs all
cells against it, so the cells of one repetition ran under the same conditions. The load generator
shares the machine with the nodes; its CPU time is reported separately.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench import table
from bench.cell_results import CellResult, save
from bench.cells import ALL, FLOOR, FLOOR_FILL, QUICK, Cell
from bench.load_generator import BINARY, LoadFailed, Run, Window, execute
from bench.machine import describe
from bench.servers import Server
from bench.worst.__main__ import main as measure_worst
from tools.local_cluster import LocalCluster

DATA: Final = Path("var/bench")
"""Folder for the nodes' data: on the disk of the checkout, because a temporary file system may be
in memory."""

FLOOR_NODES: Final = 0
WORST_REQUESTS: Final = "worst"
NORMAL_WINDOW: Final = Window(warm_up_ms=400, duration_ms=1_500)
QUICK_WINDOW: Final = Window(warm_up_ms=300, duration_ms=1_000)


@contextmanager
def empty_handlers() -> Iterator[tuple[str, list[Server]]]:
    """Run the server with empty handlers; yield its address and its process."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.floor"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), [Server(process.pid)]
        finally:
            process.terminate()


@contextmanager
def fresh_nodes(count: int) -> Iterator[tuple[str, list[Server]]]:
    """Run a new cluster; yield its addresses and its processes."""
    DATA.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=DATA) as folder,
        LocalCluster(count, Path(folder)) as cluster,
    ):
        servers = [Server(node.pid, node.http_address) for node in cluster.nodes]
        yield cluster.target, servers


@contextmanager
def servers_of(size: int) -> Iterator[tuple[str, list[Server]]]:
    """Run a new cluster of `size` nodes, or the server with empty handlers."""
    with empty_handlers() if size == FLOOR_NODES else fresh_nodes(size) as running:
        yield running


def attempt(
    cell: Cell, size: int, target: str, servers: Sequence[Server], window: Window
) -> Run | None:
    """Measure one cell and print the result; return None if it cannot be measured."""
    is_drained = size == FLOOR_NODES and cell.workload == "take" and cell.shape == "batches"
    fill = ("-fill", str(FLOOR_FILL)) if is_drained else ()
    try:
        run = execute(cell, target, servers, window, *fill)
    except LoadFailed as error:
        print(f"  {error}", file=sys.stderr)
        return None
    print(f"  {cell.name}: {table.short(run.tasks_per_second)} tasks/s", file=sys.stderr)
    return run


def measure(
    cells: Sequence[Cell], sizes: Sequence[int], repetitions: int, window: Window
) -> list[CellResult]:
    """Measure all cells; print and skip cells that cannot be measured."""
    runs: dict[tuple[int, Cell], list[Run]] = {}
    for repetition in range(1, repetitions + 1):
        for size in sizes:
            print(f"{table.heading(size)}, repetition {repetition}", file=sys.stderr)
            with servers_of(size) as (target, servers):
                for cell in cells:
                    if size == FLOOR_NODES and cell not in FLOOR:
                        continue
                    run = attempt(cell, size, target, servers, window)
                    if run is not None:
                        runs.setdefault((size, cell), []).append(run)
    return [CellResult(size, cell, done) for (size, cell), done in sorted(runs.items(), key=order)]


def order(item: tuple[tuple[int, Cell], list[Run]]) -> tuple[int, int]:
    """Return the sort key of a result: number of nodes, then the order of the cells."""
    size, cell = item[0]
    return size, ALL.index(cell)


def parse_arguments() -> argparse.Namespace:
    """Parse the options of the benchmark from the command line."""
    parser = argparse.ArgumentParser(prog="make bench", description="Measure through gRPC.")
    parser.add_argument(
        "--quick", action="store_true", help="only a few cells, once: about one minute"
    )
    parser.add_argument("--nodes", default="0,1,3", help="cluster sizes; 0: empty handlers (0,1,3)")
    parser.add_argument(
        "--only",
        default="",
        help=f"names of cells, separated by commas; {WORST_REQUESTS}: the most expensive requests",
    )
    parser.add_argument(
        "--repetitions", type=int, default=0, help="number of repetitions (3; quick: 1)"
    )
    parser.add_argument(
        "--name", default="latest", help="name of the file in bench/results (latest)"
    )
    return parser.parse_args()


def main() -> int:
    """Measure, print, save; return the exit status."""
    arguments = parse_arguments()
    if arguments.only == WORST_REQUESTS:
        measure_worst(())
        return 0
    if not BINARY.exists():
        print(f"{BINARY} is missing: run `make load` (needs Go)", file=sys.stderr)
        return 1
    names = set(filter(None, arguments.only.split(",")))
    known = {cell.name: cell for cell in ALL}
    if unknown := names - known.keys():
        print(
            f"unknown cells: {', '.join(unknown)}; the cells are {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    cells = [known[name] for name in known if name in names] or list(
        QUICK if arguments.quick else ALL
    )
    window = QUICK_WINDOW if arguments.quick else NORMAL_WINDOW
    repetitions = arguments.repetitions or (1 if arguments.quick else 3)
    sizes = [int(text) for text in arguments.nodes.split(",")]
    DATA.mkdir(parents=True, exist_ok=True)
    machine = describe(DATA)
    outcomes = measure(cells, sizes, repetitions, window)
    print(table.render(machine, outcomes))
    print(f"\nsaved: {save(arguments.name, machine, window, outcomes)}")
    return 0 if outcomes else 1


if __name__ == "__main__":
    sys.exit(main())
