"""Compare three nodes with RabbitMQ and NATS JetStream in one run (`make bench-brokers PEERS=DIR`).

DIR is the peers' harness, which starts and loads the brokers. The systems are measured in turn:
each round starts each of them anew. The program prints each measurement and the ratios of medians.
It runs on the fastest Python 3.11 that it finds, because a build with profile-guided optimisation
takes three quarters of the CPU time, and prints which. The kernel would give each node a share of
its own (autogroup), which is switched off during the run where that is allowed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.__main__ import DATA, fresh_nodes
from bench.brokers.rows import ROWS, Measurement, Row, ratio
from bench.cell_results import LATENCY_OF
from bench.load_generator import LoadFailed, Window, execute
from bench.machine import describe
from bench.table import short

BROKERS: Final = ("rabbitmq-quorum-3", "nats-jetstream-R3")
OURS: Final = "taskraft"
NODES: Final = 3
WARM_UP_MS: Final = 400
FOREIGN_PERCENT_MAX: Final = 5.0
"""Share of the machine that other programs may use in a measurement without doubt."""
AUTOGROUP: Final = Path("/proc/sys/kernel/sched_autogroup_enabled")
INTERPRETERS: Final = ("/usr/bin/python3.11", "/usr/local/bin/python3.11")
CHOSEN: Final = "TASKRAFT_BENCH_INTERPRETER"
"""Set in the process that the chosen interpreter runs."""
SPEED: Final = """
import time
def work():
    found = {}
    for number in range(200_000):
        found[number % 97] = str(number)
def once():
    began = time.process_time()
    work()
    return time.process_time() - began
print(min(once() for _ in range(7)))
"""

Results = dict[str, dict[str, list[Measurement]]]
"""Measurements by system and by the title of the row."""


class BrokerFailed(Exception):
    """A broker did not start; the message is the end of its output."""


# ------------------------------------------------------------------------------------ systems


class BrokerProcess:
    """A broker that the harness runs.

    Raises:
        BrokerFailed: the broker did not start.
    """

    def __init__(self, python: Path, folder: Path, name: str) -> None:
        program = Path(__file__).with_name("harness.py")
        environment = {**os.environ, "PB_WORK": str(DATA.resolve() / "brokers")}
        environment.pop("PYTHONPATH", None)
        self._process: Final = subprocess.Popen(
            [python, program, folder, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        if not self._read():
            raise BrokerFailed(f"{name} did not start")

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {}
        return answer

    def measure(self, row: Row, seconds: float) -> Measurement | None:
        """Measure one row; None if it failed, with a line on the standard error."""
        assert self._process.stdin is not None
        request = {"workload": row.workload, "shape": row.shape, "seconds": seconds}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._read()
        if "per_s" not in answer:
            print(f"  {row.title}: {answer.get('error', 'no answer')}", file=sys.stderr)
            return None
        latency = answer.get("e2e") or answer.get("put_lat") or answer.get("ack_lat") or {}
        done = max(answer["done"], 1)
        return Measurement(
            per_second=answer["per_s"],
            p50_ms=latency.get("p50_us", 0) / 1_000,
            p99_ms=latency.get("p99_us", 0) / 1_000,
            server_cpu_ms=answer["server_cpu_s"] * 1e6 / done,
            generator_cpu_ms=answer["client_cpu_s"] * 1e6 / done,
            is_doubtful=100 * (answer["other_cpu_share"] + answer["steal_share"])
            > FOREIGN_PERCENT_MAX,
        )

    def stop(self) -> None:
        """Stop the broker."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure_brokers(
    names: Sequence[str], python: Path, folder: Path, rows: Sequence[Row], seconds: float
) -> Iterator[tuple[str, Row, Measurement | None]]:
    """Start each broker in turn, and yield its measurements."""
    for name in names:
        broker = BrokerProcess(python, folder, name)
        try:
            for row in rows:
                yield name, row, broker.measure(row, seconds)
        finally:
            broker.stop()


def measure_nodes(
    rows: Sequence[Row], seconds: float
) -> Iterator[tuple[str, Row, Measurement | None]]:
    """Start three nodes, and yield their measurements."""
    with fresh_nodes(NODES) as (target, servers):
        for row in rows:
            try:
                run = execute(row.cell, target, servers, Window(WARM_UP_MS, int(1_000 * seconds)))
            except LoadFailed as error:
                print(f"  {error}", file=sys.stderr)
                yield OURS, row, None
                continue
            wanted = LATENCY_OF[row.cell.workload]
            latency = run.latency_us.get(wanted) or run.latency_us.get("settle") or {}
            yield (
                OURS,
                row,
                Measurement(
                    per_second=run.tasks_per_second,
                    p50_ms=latency.get("p50_us", 0) / 1_000,
                    p99_ms=latency.get("p99_us", 0) / 1_000,
                    server_cpu_ms=run.per_1000_tasks(run.use.server_cpu_ms),
                    generator_cpu_ms=run.per_1000_tasks(1_000 * run.generator_cpu_s),
                    is_doubtful=run.use.foreign_cpu_percent + run.use.steal_percent
                    > FOREIGN_PERCENT_MAX,
                ),
            )


# ---------------------------------------------------------------------------------- fair terms


def seconds_of(python: str) -> float:
    """Return the CPU time of a small program on an interpreter; infinite if it does not start."""
    done = subprocess.run([python, "-c", SPEED], capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else float("inf")


def run_on_fastest_python(module: str) -> None:
    """Replace this process by ``module`` on the fastest interpreter of this version."""
    if CHOSEN in os.environ:
        return
    found = [sys.executable, *(path for path in INTERPRETERS if shutil.which(path))]
    speeds = {path: seconds_of(path) for path in found}
    best = min(speeds, key=speeds.__getitem__)
    own = speeds[sys.executable]
    told = f"{best}, {speeds[best] / own:.2f} of the CPU time of {sys.executable}"
    environment = {**os.environ, CHOSEN: told}
    if best != sys.executable:
        # Both have the same version, so the installed packages fit.
        packages = [str(Path.cwd()), sysconfig.get_path("purelib"), *editable_paths()]
        environment["PYTHONPATH"] = os.pathsep.join(packages)
    os.execve(best, [best, "-m", module, *sys.argv[1:]], environment)  # noqa: S606 - no shell is wanted


def editable_paths() -> list[str]:
    """Return the folders of distributions that are installed in place."""
    folders = [path for path in sys.path if path and "site-packages" not in path]
    return [path for path in folders if Path(path).is_dir() and "lib/python" not in path]


@contextmanager
def equal_priorities() -> Iterator[str]:
    """Switch the autogroups of the kernel off during the block; yield what was done."""
    if not AUTOGROUP.exists():
        yield "the kernel has no autogroups"
        return
    before = AUTOGROUP.read_text()
    try:
        AUTOGROUP.write_text("0")
    except OSError:
        yield "autogroups are on, because only root may switch them off"
        return
    try:
        yield "autogroups are off"
    finally:
        AUTOGROUP.write_text(before)


# -------------------------------------------------------------------------------------- report


def print_row(name: str, row: Row, found: Measurement) -> None:
    """Print one measurement."""
    doubt = "?" if found.is_doubtful else " "
    print(
        f"  {name:<20} {row.title:<26}{short(found.per_second):>6}/s{doubt}"
        f" p50 {found.p50_ms:8.2f} ms  p99 {found.p99_ms:8.2f} ms"
        f"  CPU ms/1000: nodes {found.server_cpu_ms:7.1f}, load {found.generator_cpu_ms:6.1f}",
        flush=True,
    )


def print_ratios(results: Results, rows: Sequence[Row], brokers: Sequence[str]) -> None:
    """Print the ratios of medians as a Markdown table."""
    print("\nRatios of medians, ours to theirs; for latencies, below 1 is better:\n")
    print(f"| row | ours | {' | '.join(brokers)} |")
    print(f"| --- | --- | {' | '.join('---' for _ in brokers)} |")
    for row in rows:
        ours = results.get(OURS, {}).get(row.title, [])
        for percentile in (50, 99) if row.is_latency else (50,):
            cells = []
            for broker in brokers:
                theirs = results.get(broker, {}).get(row.title, [])
                if not ours or not theirs:
                    cells.append("-")
                    continue
                number = median([one.value(row, percentile=percentile) for one in theirs])
                cells.append(f"{ratio(row, ours, theirs, percentile):.2f} ({short(number)})")
            unit = f", p{percentile} ms" if row.is_latency else ", per second"
            own = median([one.value(row, percentile=percentile) for one in ours]) if ours else 0
            print(f"| {row.title}{unit} | {short(own)} | {' | '.join(cells)} |")


def main() -> None:
    """Measure all rounds, print them, and save them."""
    run_on_fastest_python("bench.brokers")
    parser = argparse.ArgumentParser(prog="make bench-brokers", description=__doc__)
    parser.add_argument("--peers", type=Path, required=True, help="folder of the peers' harness")
    parser.add_argument("--python", type=Path, required=True, help="Python with its packages")
    parser.add_argument("--brokers", default=",".join(BROKERS), help="names, separated by commas")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a measurement")
    parser.add_argument("--only", default="", help="beginnings of titles of rows, by commas")
    parser.add_argument("--name", default="brokers", help="name of the file in bench/results")
    options = parser.parse_args()
    brokers = [name for name in options.brokers.split(",") if name]
    begins = tuple(options.only.split(",")) if options.only else ("",)
    rows = [row for row in ROWS if row.title.startswith(begins)]
    DATA.mkdir(parents=True, exist_ok=True)
    machine = describe(DATA)
    print(f"{machine.processor}, {machine.cores} cores, commit {machine.commit}")
    print(f"interpreter: {os.environ[CHOSEN]}")
    edge = "the native edge" if find_spec("taskraft_edge") else "grpc.aio (`make native` is faster)"
    print(f"clients of the nodes are served by {edge}")
    results: Results = {}
    with equal_priorities() as told:
        print(told)
        for number in range(1, options.rounds + 1):
            print(f"round {number}", flush=True)
            peers = measure_brokers(brokers, options.python, options.peers, rows, options.seconds)
            for measurements in (peers, measure_nodes(rows, options.seconds)):
                for name, row, found in measurements:
                    if found is not None:
                        print_row(name, row, found)
                        results.setdefault(name, {}).setdefault(row.title, []).append(found)
    print_ratios(results, rows, brokers)
    content = {
        "machine": asdict(machine),
        "interpreter": os.environ[CHOSEN],
        "results": {
            name: {title: [asdict(one) for one in found] for title, found in titles.items()}
            for name, titles in results.items()
        },
    }
    path = Path("bench/results") / f"{options.name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
