"""Measure what looking costs a node: samples of tubes, fingerprints of failures, ranked statistics.

The node is in the memory of this process. The program prints the CPU time of one sample, with one
put in each tube before each sample, and as a part of the 10 s between two samples; the memory of
the samples; the CPU time of the fingerprint of a failure; and the CPU time of GetStatistics.

Run: `python -m bench.watching [--tubes 10000]`.
"""

from __future__ import annotations

import argparse
import asyncio
from statistics import median
from typing import Final, cast

import grpc.aio

from bench.core_queue import cpu_ns
from bench.worst.stage import Size, Stage
from taskraft.v1 import tube_service_pb2 as pb
from taskraft_service.clock.cluster_clock import NodeClocks
from taskraft_service.machine.sample_rings import WIDTH
from taskraft_service.machine.tube_sampler import (
    COARSE_SAMPLES,
    FINE_MS,
    FINE_SAMPLES,
    TUBES_MAX,
)
from taskraft_service.memory_node.memory_node import MemoryNode
from taskraft_service.process.memory import spare_the_collector
from taskraft_service.queue.entities.event_cause import FINGERPRINTS_KEPT, EventCause

ROUNDS: Final = 15
FAILURES: Final = 20_000
CHANGED: Final = 100
"""Number of tubes that change between two requests for the changed tubes."""
NUMBER_BYTES: Final = 4
MIB: Final = 1 << 20


async def put_in_each(stage: Stage, tubes: list[str]) -> None:
    """Put one task in each tube."""
    for tube in tubes:
        await stage.put(tube, 1)


async def measure_samples(node: MemoryNode, stage: Stage, tubes: list[str]) -> None:
    """Print the CPU time of one sample, and the memory of all samples."""
    sampler = node.components.sampler
    times: list[int] = []
    for _ in range(ROUNDS):
        await put_in_each(stage, tubes)
        begun = cpu_ns()
        for _step in sampler.sample():
            pass
        times.append(cpu_ns() - begun)
    one_ms = median(times[1:]) / 1e6
    print(f"one sample of {len(tubes)} tubes: {one_ms:.1f} ms, {one_ms / FINE_MS:.3%} of a core")
    numbers = (FINE_SAMPLES + COARSE_SAMPLES) * WIDTH * (TUBES_MAX + 1)
    print(f"memory of the samples of {TUBES_MAX} tubes: {numbers * NUMBER_BYTES / MIB:.1f} MiB")


def measure_fingerprints() -> None:
    """Print the CPU time of the fingerprint of a failure."""
    texts = [f"connection to 10.0.{n % 250}.7:{n} refused after {n} ms" for n in range(FAILURES)]
    known = texts[:FINGERPRINTS_KEPT] * (FAILURES // FINGERPRINTS_KEPT)
    for title, messages in (("new texts", texts), ("texts that were seen before", known)):
        begun = cpu_ns()
        for message in messages:
            assert EventCause("ConnectionError", message).fingerprint
        print(
            f"fingerprint of a failure, {title}: {(cpu_ns() - begun) / len(messages) / 1e3:.1f} us"
        )


async def measure_statistics(stage: Stage, tubes: list[str]) -> None:
    """Print the CPU time of GetStatistics for all tubes, by rank, and for the changed tubes."""
    order = pb.GetStatisticsRequest
    whole = await stage.tubes.GetStatistics(pb.GetStatisticsRequest(brief=True, page_size=1))
    await put_in_each(stage, tubes[:CHANGED])
    for title, request in (
        ("one page of 1 000 tubes, brief", order(brief=True)),
        ("the 20 tubes with most READY tasks", order(order_by=order.READY, page_size=20)),
        ("the 20 tubes with the oldest task", order(order_by=order.OLDEST_READY, page_size=20)),
        ("changed tubes, brief", order(brief=True, changed_since_revision=whole.revision)),
    ):
        times: list[int] = []
        for _ in range(ROUNDS):
            begun = cpu_ns()
            answer = await stage.tubes.GetStatistics(request)
            times.append(cpu_ns() - begun)
        listed = len(answer.tubes)
        print(f"GetStatistics, {title}: {median(times) / 1e6:.1f} ms for {listed} tubes")


async def measure(tube_count: int) -> None:
    """Fill the node, and print all results."""
    node = MemoryNode(NodeClocks())
    await node.start()
    channel = cast("grpc.aio.Channel", node.channel())
    stage = Stage(channel, Size(tubes=0, sessions=0, schedules=0, groups=0, tasks=0))
    tubes = [f"tube.{number:05}" for number in range(tube_count)]
    for tube in tubes:
        await stage.create_tube(tube)
    await measure_samples(node, stage, tubes)
    node.machine.write_applied()
    await measure_statistics(stage, tubes)
    measure_fingerprints()


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tubes", type=int, default=10_000)
    spare_the_collector()
    asyncio.run(measure(parser.parse_args().tubes))


if __name__ == "__main__":
    main()
