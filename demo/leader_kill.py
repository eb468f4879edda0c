"""Kill the leader during the work, and start the node again later."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from demo.event_log import EventLog
from taskraft import Client
from tools.local_cluster import LocalCluster
from tools.local_node import Node

PROBE_TUBE: Final = "probe"
FAILOVER_TIMEOUT: Final = "30s"


@dataclass(slots=True, frozen=True)
class LeaderKill:
    """The killed node, and the failover time that a client saw."""

    victim: Node
    failover_ms: int
    """Time from the kill until the next put was answered, in ms."""


def kill_leader(cluster: LocalCluster, client: Client, event_log: EventLog) -> LeaderKill:
    """Kill the leader with SIGKILL, and measure the time until a client's next put is answered.

    The client has a connection to the leader and must detect by itself that the node is gone, as
    any other client must.
    """
    probe = client.tube(PROBE_TUBE)
    probe.put(b"before")
    victim = cluster.wait_ready()
    event_log.print_event(f"SIGKILL to the leader {victim.name} (process {victim.pid})")
    victim.kill()
    began_ns = time.monotonic_ns()
    probe.put(b"after", timeout=FAILOVER_TIMEOUT)
    failover_ms = (time.monotonic_ns() - began_ns) // 1_000_000
    event_log.print_event(
        f"the client's put was answered {failover_ms / 1_000:.2f} s after the kill"
    )
    return LeaderKill(victim, failover_ms)


def restart(leader_kill: LeaderKill, event_log: EventLog) -> None:
    """Start the killed node again with its data directory."""
    leader_kill.victim.start()
    event_log.print_event(
        f"{leader_kill.victim.name} starts again (process {leader_kill.victim.pid})"
    )
