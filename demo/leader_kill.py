"""Kill the leader in the middle of the work, and start it again later."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from demo.event_log import EventLog
from taskraft import Client
from tools.local_cluster import LocalCluster, Node

PROBE_TUBE: Final = "probe"
FAILOVER_TIMEOUT: Final = "30s"


@dataclass(slots=True, frozen=True)
class LeaderKill:
    """What was killed, and what it cost a client."""

    victim: Node
    failover_ms: int
    """From the kill until a put that began right after it was answered."""


def kill_leader(cluster: LocalCluster, client: Client, event_log: EventLog) -> LeaderKill:
    """Kill the leader with SIGKILL and measure how long a client then waits for an answer.

    The client has spoken to the leader just before, so it has to find out by itself that its node
    is gone, as any other client has.
    """
    probe = client.tube(PROBE_TUBE)
    probe.put(b"before")
    victim = cluster.wait_ready()
    event_log.print_event(f"SIGKILL to {victim.name}, which leads (process {victim.pid})")
    victim.kill()
    began_ns = time.monotonic_ns()
    probe.put(b"after", timeout=FAILOVER_TIMEOUT)
    failover_ms = (time.monotonic_ns() - began_ns) // 1_000_000
    event_log.print_event(f"a client had its answer {failover_ms / 1_000:.2f} s after the kill")
    return LeaderKill(victim, failover_ms)


def restart(leader_kill: LeaderKill, event_log: EventLog) -> None:
    """Start the killed node again with the data it had."""
    leader_kill.victim.start()
    event_log.print_event(
        f"{leader_kill.victim.name} starts again (process {leader_kill.victim.pid})"
    )
