"""Run a broker of a peers' harness, and measure it on request: a process of its own.

The harness is a folder with a module ``peers`` (starts and stops brokers) and a module ``bench``
(measures them with a load generator in C). Its Python packages are in another environment than
ours, so this program has no imports of ours. Each line of the standard input is a request in JSON,
each line of the standard output an answer.

Run: `python bench/brokers/harness.py FOLDER BROKER`.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

Harness = Any  # modules and objects of the harness have no types
SIZE = 100
"""Bytes of a task."""
RATE = 500
"""Puts per second of the row with a fixed rate."""
RATE_SECONDS_MIN = 4


def loaded(folder: Path, name: str) -> ModuleType:
    """Import a module of the harness by its path, because its name may be that of a package."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


def build(folder: Path, peers: Harness) -> None:
    """Build the programs of the harness."""
    peers.QLOAD.parent.mkdir(parents=True, exist_ok=True)
    for binary in (peers.QLOAD, peers.RAWLIM):
        source = folder / "native" / f"{binary.name}.c"
        subprocess.run(
            [shutil.which("gcc") or "gcc", "-O2", "-w", "-o", binary, source], check=True
        )


def measured(bench: Harness, broker: Harness, workload: str, shape: str, seconds: float) -> Harness:
    """Return the result of one row: rate, latencies in us, and whether others used the machine."""
    broker.reset()
    if workload == "rate":
        seconds = max(seconds, RATE_SECONDS_MIN)
        return bench.qload(broker, "mixed", broker.rate_args(), seconds, SIZE, rate=RATE)
    if workload == "saturated":
        return bench.qload(broker, "mixed", broker.sat_args(shape), seconds, SIZE)
    put = bench.qload(broker, "put", broker.put_args(shape), seconds, SIZE)
    if workload == "put":
        return put
    return bench.qload(broker, "cycle", broker.cyc_args(shape), seconds, SIZE, n=put["done"])


def main() -> None:
    """Start the broker, answer requests until the input ends, and stop the broker."""
    folder, name = Path(sys.argv[1]).resolve(), sys.argv[2]
    peers = loaded(folder, "peers")
    bench = loaded(folder, "bench")
    build(folder, peers)
    broker = peers.PEERS[name]
    try:
        broker.start()
        print(json.dumps({"started": name}), flush=True)
        for line in sys.stdin:
            wanted = json.loads(line)
            try:
                answer = measured(bench, broker, **wanted)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)
    finally:
        broker.stop()


if __name__ == "__main__":
    main()
