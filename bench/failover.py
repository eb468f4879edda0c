"""Measure how long puts fail after the leader is killed: three processes, real disks.

A client of the Python library puts one task every 10 ms. After a steady phase, the leader gets
SIGKILL. The result is the time from the signal to the acknowledgement of the first put that started
after the signal. The killed node is started again before the next round.

    python -m bench.failover [--kills 50]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from taskraft import AsyncClient
from taskraft.errors import TaskraftError
from tools.local_cluster import LocalCluster

PUT_EVERY_MS: Final = 10
STEADY_MS: Final = 500
"""How long everything must go well before the next kill."""
TUBE: Final = "failover"


class Putter:
    """Puts a task every 10 ms, and notes when each put started and was answered."""

    def __init__(self, client: AsyncClient) -> None:
        self._tube = client.tube(TUBE)
        self._in_flight: set[asyncio.Task[None]] = set()
        self._answered = asyncio.Event()
        self._first_after = 0.0
        self._since = float("inf")
        self.acknowledged = 0
        self.failed = 0

    async def run(self) -> None:
        """Put until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            task = loop.create_task(self._put(time.monotonic()))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)
            due += PUT_EVERY_MS / 1000
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def _put(self, begun: float) -> None:
        try:
            await self._tube.put(b"x" * 100, timeout=10)
        except TaskraftError:
            self.failed += 1
            return
        self.acknowledged += 1
        if begun >= self._since:
            self._since = float("inf")
            self._first_after = time.monotonic()
            self._answered.set()

    async def silence_ms(self, since: float) -> float:
        """Return the ms from ``since`` until a put that started after it was acknowledged."""
        self._answered.clear()
        self._since = since
        await self._answered.wait()
        return 1000 * (self._first_after - since)


async def measure(cluster: LocalCluster, kills: int) -> list[float]:
    """Kill the leader `kills` times; return the ms of each failover."""
    silences = []
    async with AsyncClient(cluster.target) as client:
        await client.create_tube(TUBE, if_not_exists=True)
        putter = Putter(client)
        putting = asyncio.get_running_loop().create_task(putter.run())
        for number in range(kills):
            leader = await asyncio.to_thread(cluster.wait_ready)
            await asyncio.sleep(STEADY_MS / 1000)
            since = time.monotonic()
            leader.kill()
            silences.append(await putter.silence_ms(since))
            print(f"kill {number + 1}: {leader.name}, {silences[-1]:.0f} ms", flush=True)
            await asyncio.to_thread(leader.start)
        putting.cancel()
        print(f"puts acknowledged: {putter.acknowledged}, failed: {putter.failed}")
    return silences


def summary(silences: Sequence[float]) -> str:
    """Return the line with the results."""
    p99 = quantiles(silences, n=100, method="inclusive")[98] if len(silences) > 1 else silences[0]
    return (
        f"failover after SIGKILL of the leader, {len(silences)} kills: "
        f"p50 {median(silences):.0f} ms, p99 {p99:.0f} ms, maximum {max(silences):.0f} ms; "
        f"target p50 600, p99 1000"
    )


def main() -> None:
    """Parse the arguments, measure, print the results."""
    parser = argparse.ArgumentParser(description="Measure how long a failover takes.")
    parser.add_argument("--kills", type=int, default=50)
    kills = parser.parse_args().kills
    with (
        tempfile.TemporaryDirectory(prefix="taskraft-failover-") as folder,
        LocalCluster(3, Path(folder) / "cluster") as cluster,
    ):
        print(summary(asyncio.run(measure(cluster, kills))))


if __name__ == "__main__":
    main()
