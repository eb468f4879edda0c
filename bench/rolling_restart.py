"""Restart three secured nodes one after the other, each with a new address, under a load of puts.

The nodes use TLS on all ports and an access file, and reach each other by host names, as pods of
Kubernetes do. A Python client puts 500 tasks a second. Each restart stops a node with SIGTERM,
gives its name another loopback address, starts the node there, and waits until its readiness probe
succeeds: a node is ready when it has caught up with the leader. Results: failed puts, the longest
put, and the time from the start of a process until the node is ready.

    python -m bench.rolling_restart [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from statistics import median
from typing import Final

from taskraft import AsyncClient
from taskraft.errors import TaskraftError
from tools.host_names import HostNames, missing
from tools.local_cluster import LocalCluster
from tools.local_node import Node

PUTS_PER_SECOND: Final = 500
PUT_TIMEOUT_SECONDS: Final = 10.0
STEADY_SECONDS: Final = 2.0
"""Time between a node's readiness and the next stop."""
POLL_SECONDS: Final = 0.02
READY_SECONDS_MAX: Final = 60.0
TUBE: Final = "rolling"
DOMAIN: Final = "rolling.test"
TOKEN: Final = "token of the benchmark"  # noqa: S105 - the cluster lives as long as the run
HOSTS: Final = "BENCH_HOSTS"
"""Environment variable with the hosts file of the process that runs in its own namespace."""


class SecuredCluster:
    """Three nodes with certificates, host names and an access file."""

    def __init__(self, folder: Path, names: HostNames) -> None:
        self._folder = folder
        self._names = names
        self._hosts = (f"127.0.1.{number}" for number in itertools.count(1))
        self.cluster = LocalCluster(3, folder / "c")
        self.authority = folder / "ca.crt"
        self._issue("ca", "basicConstraints=critical,CA:TRUE")
        access = folder / "access.toml"
        digest = hashlib.sha256(TOKEN.encode()).hexdigest()
        access.touch(mode=0o600)
        access.write_text(
            f'[principals.root]\ntokens = ["sha256:{digest}"]\n'
            '[[principals.root.grants]]\nrole = "admin"\ntubes = ["*"]\n'
        )
        members = self.cluster.nodes[0].environment["TASKRAFT_PEERS"]
        for node in self.cluster.nodes:
            for address in (node.address, node.peer_address):
                members = members.replace(address, self._named(node, address))
        for node in self.cluster.nodes:
            certificate, key = self._certificate(node)
            node.environment = {
                **node.environment,
                "TASKRAFT_PEERS": members,
                "TASKRAFT_TLS_CERT": certificate,
                "TASKRAFT_TLS_KEY": key,
                "TASKRAFT_PEER_TLS_CERT": certificate,
                "TASKRAFT_PEER_TLS_KEY": key,
                "TASKRAFT_PEER_TLS_CA": str(self.authority),
                "TASKRAFT_ACCESS_FILE": str(access),
            }
            self.move(node)
        self.target = ",".join(self._named(node, node.address) for node in self.cluster.nodes)

    def _named(self, node: Node, address: str) -> str:
        return f"{node.name}.{DOMAIN}:{address.rpartition(':')[2]}"

    def _certificate(self, node: Node) -> tuple[str, str]:
        """Write a certificate for both ports of a node; return its path and the path of its key."""
        cluster = node.environment["TASKRAFT_CLUSTER_ID"]
        names = (f"{node.name}.{cluster}.taskraft", f"{cluster}.taskraft", f"{node.name}.{DOMAIN}")
        alternatives = ",".join(f"DNS:{name}" for name in names)
        return self._issue(node.name, f"subjectAltName={alternatives}", signed=True)

    def _issue(self, name: str, extension: str, *, signed: bool = False) -> tuple[str, str]:
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        command = ["openssl", "req", "-x509", "-newkey", "ec"]
        command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "2"]
        command += ["-subj", f"/CN={name}", "-addext", extension]
        command += ["-keyout", str(key), "-out", str(certificate)]
        if signed:
            command += ["-CA", str(self.authority), "-CAkey", str(self._folder / "ca.key")]
            command += ["-addext", "basicConstraints=critical,CA:FALSE"]
        subprocess.run(command, check=True, capture_output=True)
        return str(certificate), str(key)

    def move(self, node: Node) -> None:
        """Give a stopped node a new address behind its name."""
        host = next(self._hosts)
        self._names.set(f"{node.name}.{DOMAIN}", host)
        moved = {
            setting: f"{host}:{node.environment[setting].rpartition(':')[2]}"
            for setting in ("TASKRAFT_LISTEN", "TASKRAFT_PEER_LISTEN")
        }
        node.environment = {**node.environment, **moved}


def is_ready(node: Node) -> bool:
    """Return whether the readiness probe of a node succeeds."""
    try:
        with urllib.request.urlopen(f"http://{node.http_address}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def ready_seconds(node: Node, since: float) -> float:
    """Wait until a node is ready; return the seconds since ``since``, a monotonic time."""
    async with asyncio.timeout(READY_SECONDS_MAX):
        while not await asyncio.to_thread(is_ready, node):  # noqa: ASYNC110 - a probe is polled
            await asyncio.sleep(POLL_SECONDS)
    return time.monotonic() - since


class Load:
    """Puts of single tasks at a constant rate."""

    def __init__(self, client: AsyncClient) -> None:
        self._tube = client.tube(TUBE)
        self._in_flight: set[asyncio.Task[None]] = set()
        self.acknowledged = 0
        self.failures: list[str] = []
        self.longest_ms = 0.0

    async def run(self) -> None:
        """Put until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            task = loop.create_task(self._put())
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)
            due += 1 / PUTS_PER_SECOND
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def _put(self) -> None:
        begun = time.monotonic()
        try:
            await self._tube.put(b"x" * 100, timeout=PUT_TIMEOUT_SECONDS)
        except TaskraftError as error:
            self.failures.append(f"{time.monotonic() - begun:.2f} s: {error!r}")
            return
        self.acknowledged += 1
        self.longest_ms = max(self.longest_ms, 1000 * (time.monotonic() - begun))

    async def end(self) -> None:
        """Wait for the puts in flight."""
        await asyncio.gather(*self._in_flight)


async def measure(secured: SecuredCluster, rounds: int) -> tuple[Load, list[float], list[float]]:
    """Restart each node `rounds` times; return the load, ready times in s, longest puts in ms."""
    ready: list[float] = []
    longest: list[float] = []
    nodes = secured.cluster.nodes
    began = time.monotonic()
    secured.cluster.start()
    for node in nodes:
        await ready_seconds(node, began)
    async with AsyncClient(secured.target, ca=secured.authority, token=TOKEN) as client:
        await client.create_tube(TUBE)
        load = Load(client)
        putting = asyncio.get_running_loop().create_task(load.run())
        for node in nodes * rounds:
            await asyncio.sleep(STEADY_SECONDS)
            load.longest_ms = 0.0
            await asyncio.to_thread(node.stop)
            secured.move(node)
            began = time.monotonic()
            node.start()
            ready.append(await ready_seconds(node, began))
            await asyncio.sleep(STEADY_SECONDS)
            longest.append(load.longest_ms)
            print(
                f"{node.name}: ready after {ready[-1]:.2f} s, longest put {longest[-1]:.0f} ms, "
                f"load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
        putting.cancel()
        await load.end()
    return load, ready, longest


def main() -> None:
    """Enter a namespace with separate host names, measure, print the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taskraft-rolling-") as folder:
        hosts = Path(folder) / "hosts"
        if HOSTS not in os.environ:
            if reason := missing(hosts):
                sys.exit(f"this machine does not allow own host names: {reason}")
            command = HostNames(hosts).command(sys.executable, "-m", "bench.rolling_restart")
            command = [*command, *sys.argv[1:]]
            environment = {**os.environ, HOSTS: str(hosts)}
            sys.exit(subprocess.run(command, env=environment, check=False).returncode)
        secured = SecuredCluster(Path(folder), HostNames(Path(os.environ[HOSTS])))
        try:
            load, ready, longest = asyncio.run(measure(secured, options.rounds))
        finally:
            secured.cluster.close()
    print("\n".join(load.failures[:10]))
    print(
        f"{len(ready)} restarts, {load.acknowledged} puts acknowledged, {len(load.failures)} "
        f"failed; longest put: median {median(longest):.0f} ms, maximum {max(longest):.0f} ms; "
        f"ready after: median {median(ready):.2f} s, maximum {max(ready):.2f} s"
    )


if __name__ == "__main__":
    main()
