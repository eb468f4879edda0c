"""Measure the CPU cost of consensus per entry: three members in one process, no disk, no network.

Entries of 100 bytes are proposed one by one, in asynchronous mode, each in its own message to each
follower. Messages go through the real send queues, so a message that is not urgent, such as a new
commit index, is sent with the next message. As with the driver, the members process all received
messages before they ask for work. The goal is for four entries in flight, the default. With one
entry in flight, the leader commits and applies each entry before it proposes the next entry, so
that two entries share no work. The garbage collector is set as in a node. Prints one line.

    python -m bench.raft_commit_path [--entries 3000] [--rounds 7]
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Sequence
from statistics import median
from time import process_time_ns

from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.memory_log import MemoryLog
from taskraft_replication.core.raft import RaftCore
from taskraft_replication.core.types import (
    APPEND_WORKER,
    APPLY_WORKER,
    NO_MEMBER,
    ConfState,
    LogIndex,
    MemberId,
    Message,
    RaftRole,
)
from taskraft_replication.peers.send_queue import PeerSendQueue
from taskraft_service.process.memory import spare_the_collector

MEMBERS = tuple(MemberId(number) for number in (1, 2, 3))
GOAL_US = 60
IN_FLIGHT = (4, 1, 8)
COMPACT_EVERY = 1000
"""The logs are compacted after this many entries, so that they do not grow during the whole run."""


class Cluster:
    """Three members without network delay and without disk time."""

    def __init__(self) -> None:
        configuration = ConfState(MEMBERS)
        self._logs = {member: MemoryLog(configuration) for member in MEMBERS}
        self._cores = {
            member: RaftCore(RaftConfig(member), self._logs[member], lambda n: n - 1)
            for member in MEMBERS
        }
        self._queues = {
            sender: {to: PeerSendQueue() for to in MEMBERS if to != sender} for sender in MEMBERS
        }
        self.leader = self._cores[MEMBERS[0]]
        self.leader.campaign()
        self.settle()
        assert self.leader.role is RaftRole.LEADER

    def settle(self) -> None:
        """Process all urgent messages."""
        stepped = deque(MEMBERS)
        while stepped:
            member = stepped.popleft()
            core = self._cores[member]
            while core.has_ready():
                self._perform(member, core.ready().messages)
            for to, queue in self._queues[member].items():
                if queue.is_urgent:
                    step = self._cores[to].step
                    for message in queue.take_frame():
                        step(message)
                    if to not in stepped:
                        stepped.append(to)

    def _perform(self, member: MemberId, messages: Sequence[Message]) -> None:
        step, queues = self._cores[member].step, self._queues[member]
        for message in messages:
            to = message.to
            if to > NO_MEMBER:
                queues[to].put(message)
                continue
            if to == APPEND_WORKER:
                log = self._logs[member]
                log.store(message.hard_state, message.entries, message.snapshot)
            else:
                assert to == APPLY_WORKER
            for reply in message.replies:
                if reply.to == member:
                    step(reply)
                else:
                    queues[reply.to].put(reply)

    def compact(self) -> None:
        """Compact the logs up to the entries that may still be read."""
        for member, core in self._cores.items():
            self._logs[member].compact(LogIndex(core.applied_index - 1))


def cpu_us_per_entry(entries: int, in_flight: int) -> float:
    """Commit ``entries`` on a new cluster; return the CPU time per entry in microseconds."""
    cluster = Cluster()
    spent_ns = 0
    for _ in range(entries // COMPACT_EVERY):
        begin_ns = process_time_ns()
        for _ in range(COMPACT_EVERY // in_flight):
            for _ in range(in_flight):
                cluster.leader.propose(b"x" * 100)
            cluster.settle()
        spent_ns += process_time_ns() - begin_ns
        cluster.compact()
    assert cluster.leader.applied_index == entries + 1
    return spent_ns / entries / 1000


def main() -> None:
    """Read the command line, measure, print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--entries", type=int, default=3000, help="in each round, a multiple of 1000"
    )
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    spare_the_collector()
    medians = []
    for in_flight in IN_FLIGHT:
        rounds = [cpu_us_per_entry(arguments.entries, in_flight) for _ in range(arguments.rounds)]
        medians.append(f"{median(rounds):.1f} ({min(rounds):.0f}-{max(rounds):.0f})")
    print(
        f"raft commit path, 3 members, µs CPU per entry, median of {arguments.rounds}: "
        + ", ".join(f"{m} with {n} in flight" for m, n in zip(medians, IN_FLIGHT, strict=True))
        + f"; goal {GOAL_US} with {IN_FLIGHT[0]}"
    )


if __name__ == "__main__":
    main()
