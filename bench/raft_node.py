"""Measure the whole path of an entry: core, driver and log, with and without a network.

``python -m bench.raft_node`` proposes entries of 100 bytes on one node and on three nodes in this
process. It prints CPU time, fsyncs (of the node with the most fsyncs) and latency per entry.
``direct`` replaces the connections between the nodes by function calls: the result is the cost of
consensus and storage alone.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from taskraft_replication.core.types import (
    Entry,
    LogIndex,
    MemberId,
    MemberInfo,
    Message,
    RaftRole,
    Roster,
    SnapshotMeta,
    Term,
)
from taskraft_replication.machine import SnapshotReader, StagedState
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.node.node import Node
from taskraft_replication.peers.contract import Membership, PreferredSet, Receiver
from taskraft_replication.peers.transport import GrpcTransport


class NullSnapshot:
    """An empty snapshot."""

    def __init__(self, index: LogIndex) -> None:
        self.index = index

    def read(self, offset: int, size: int) -> bytes:
        """Return nothing."""
        del offset, size
        return b""

    def close(self) -> None:
        """Release nothing."""


class NullMachine:
    """A state machine that applies nothing."""

    def __init__(self) -> None:
        self.applied_index = LogIndex(0)
        self.durable_index = LogIndex(0)

    is_writing = False

    def write_some(self) -> None:
        """Do nothing, because nothing is written."""

    def waits_for_disk(self, entry: Entry) -> bool:
        """Return False, because no entry of this machine depends on the disk."""
        del entry
        return False

    def waits_for_members(self) -> bool:
        """Return False, because this machine needs no message of other members."""
        return False

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Record the index of the last entry."""
        self.applied_index = entries[-1].index
        return entries

    def write_applied(self) -> None:
        """Do nothing, because this machine has no state to write."""

    def flush_durably(self) -> LogIndex:
        """Return the applied index without any write."""
        self.durable_index = self.applied_index
        return self.durable_index

    def open_snapshot(self) -> NullSnapshot:
        """Return an empty snapshot."""
        return NullSnapshot(self.applied_index)

    @property
    def snapshot_index(self) -> LogIndex:
        """The index of a snapshot that is opened now."""
        return self.applied_index

    def stage_snapshot(self, index: LogIndex, chunks: Iterable[bytes]) -> StagedState:
        """Fail, because in a benchmark no member falls behind."""
        raise AssertionError(f"a snapshot at {index}")


class DirectTransport:
    """Passes messages by function calls, in the next iteration of the event loop."""

    def __init__(self) -> None:
        self._receivers: dict[MemberId, Receiver] = {}
        self._directories: dict[MemberId, str] = {}

    def join(self, membership: Membership, roster: Roster, receiver: Receiver) -> DirectTransport:
        """Return this object, which exchanges the messages of all members."""
        for member, other in self._receivers.items():
            receiver.handshake_done(member, self._directories[member])
            other.handshake_done(membership.member_id, membership.directory_id)
        self._receivers[membership.member_id] = receiver
        self._directories[membership.member_id] = membership.directory_id
        return self

    @property
    def is_accepted(self) -> bool:
        """Return True, because these members do not refuse each other."""
        return True

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages to their receivers; never blocks, and may lose messages."""
        loop = asyncio.get_running_loop()
        for message in messages:
            receiver = self._receivers.get(message.to)
            if receiver is not None:
                loop.call_soon(receiver.receive, (message,))

    def send_snapshot(self, message: Message, meta: SnapshotMeta, content: SnapshotReader) -> None:
        """Close the content, because no benchmark sends snapshots."""
        content.close()

    def set_preferred(self, chosen: PreferredSet) -> None:
        """Do nothing, because all messages are sent at once."""

    def set_leading_term(self, term: Term) -> None:
        """Do nothing, because messages are delivered whole and partial frames are not reported."""

    def send_alive(self, leader: MemberId, term: Term) -> None:
        """Do nothing, because messages are delivered whole and partial frames are not reported."""

    def set_roster(self, roster: Roster) -> None:
        """Update members and addresses; links to removed members are closed."""

    async def close(self) -> None:
        """Close all streams of the group."""


@dataclass(slots=True, frozen=True)
class Workload:
    """The proposals of one measurement: ``entries`` in total, ``window`` of them in flight."""

    nodes: int
    entries: int
    window: int
    is_direct: bool


def cpu_us() -> int:
    """Return the CPU time of this process so far, in microseconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return int(1e6 * (usage.ru_utime + usage.ru_stime))


async def open_nodes(path: Path, workload: Workload) -> tuple[list[Node], list[GrpcTransport]]:
    """Start the nodes; return them and the transports to stop in the end."""
    ids = [MemberId(number) for number in range(1, workload.nodes + 1)]
    direct = DirectTransport()
    transports = [] if workload.is_direct else [GrpcTransport() for _ in ids]
    ports = [await transport.start("127.0.0.1:0") for transport in transports] or [0] * len(ids)
    members = {
        member: MemberInfo(member, f"n{member}", peer_address=f"127.0.0.1:{port}")
        for member, port in zip(ids, ports, strict=True)
    }
    nodes = []
    for place, member in enumerate(ids):
        config = NodeConfig("bench", member, path / str(member), members)
        transport = direct if workload.is_direct else transports[place]
        nodes.append(await Node.open(config, NullMachine(), transport))
    for node in nodes:
        await node.start()
    return nodes, transports


async def leader_of(nodes: list[Node]) -> Node:
    """Wait for a leader that has committed an entry of its term."""
    while True:
        for node in nodes:
            if node.status().role is RaftRole.LEADER:
                await node.propose(b"")
                return node
        await asyncio.sleep(0.01)


async def measure(workload: Workload, path: Path) -> str:
    """Run a workload; return one line of figures."""
    nodes, transports = await open_nodes(path, workload)
    leader = await leader_of(nodes)
    latencies: list[float] = []

    async def client(count: int) -> None:
        for _ in range(count):
            begun = time.perf_counter()
            await leader.propose(bytes(100))
            latencies.append(time.perf_counter() - begun)

    batches = {node: node.counters.batches for node in nodes}
    cpu, begun = cpu_us(), time.perf_counter()
    share = workload.entries // workload.window
    await asyncio.gather(*(client(share) for _ in range(workload.window)))
    seconds, cpu = time.perf_counter() - begun, cpu_us() - cpu
    entries = share * workload.window
    syncs = max(node.counters.batches - batches[node] for node in nodes)
    await asyncio.gather(*(node.stop() for node in nodes))
    await asyncio.gather(*(transport.stop() for transport in transports))
    way = "direct" if workload.is_direct else "frames"
    return (
        f"{workload.nodes} node(s) {way:>6} window {workload.window:>4}: "
        f"{entries / seconds:>8.0f} entries/s {cpu / entries:>7.1f} us CPU/entry "
        f"{syncs / entries:>6.3f} syncs/entry p50 {1e3 * median(latencies):.2f} ms"
    )


def main() -> None:
    """Run all workloads."""
    parser = argparse.ArgumentParser(description="Measure the path of an entry.")
    parser.add_argument("--entries", type=int, default=20_000)
    entries = parser.parse_args().entries
    for nodes, is_direct in ((1, True), (3, True), (3, False)):
        for window in (1, 10, 100, 1000):
            count = entries if window > 1 else entries // 10
            with tempfile.TemporaryDirectory() as path:
                workload = Workload(nodes, count, window, is_direct)
                print(asyncio.run(measure(workload, Path(path))), flush=True)


if __name__ == "__main__":
    main()
