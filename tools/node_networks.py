"""Give each node of a local cluster a network of its own, whose links can be cut without a reset.

Each node runs in a network namespace that is connected to one bridge. A cut makes both ends send
their packets to a hardware address that does not exist, so the packets are lost as on a broken
link: open connections stay open, and no connection attempt is answered.

The kernel carries the packets, so measurements show no cost of a router in Python as with
``tools.packet_links``, and the connections of a client can be cut too.

The program that uses this module must run in namespaces of its own: see ``command_of_namespaces``.
No root is needed where the kernel permits user namespaces.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from tools.local_cluster import LocalCluster
from tools.local_node import Node

SUBNET: Final = "10.77.0"
HERE: Final = 254
"""Last part of the address of the program itself."""
NOBODY: Final = "02:00:00:00:00:fe"
"""Hardware address that no interface has."""
BRIDGE: Final = "br-nodes"
INTERFACE: Final = "eth0"
MOUNT: Final = 'mount -t tmpfs tmpfs /run && exec "$@"'


def command_of_namespaces(*command: str) -> Sequence[str]:
    """Return the command line that runs a program in its own network and mount namespaces."""
    return ("unshare", "-Urmn", "sh", "-c", MOUNT, "sh", *command)


def missing() -> str:
    """Return why this machine cannot run the namespaces; empty if it can."""
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            return f"{program} is missing"
    trial = command_of_namespaces("ip", "link", "add", BRIDGE, "type", "bridge")
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


def _ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True, capture_output=True, text=True)  # noqa: S607 - ip is found on the PATH


class NodeNetworks:
    """The networks of the nodes of a cluster that has not been started yet.

    The nodes and this program reach each other at ``10.77.0.n``.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._places = {node.name: place for place, node in enumerate(cluster.nodes, start=1)}
        _ip("link", "set", "lo", "up")
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("address", "add", f"{SUBNET}.{HERE}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        hosts: dict[str, str] = {}
        for node in cluster.nodes:
            host = self._connect(node.name)
            hosts |= {
                address: f"{host}:{address.rpartition(':')[2]}"
                for address in (node.address, node.peer_address, node.http_address)
            }
        for node in cluster.nodes:
            _move(node, hosts)

    def _connect(self, name: str) -> str:
        """Create the network of a node and connect it to the bridge; return its host."""
        port, host = f"port-{name}", f"{SUBNET}.{self._places[name]}"
        _ip("netns", "add", name)
        _ip("link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", name)
        _ip("link", "set", port, "master", BRIDGE, "up")
        _ip("-n", name, "address", "add", f"{host}/24", "dev", INTERFACE)
        _ip("-n", name, "link", "set", INTERFACE, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        return host

    def cut_peers(self, node: Node) -> None:
        """Drop all packets between a node and the other nodes."""
        for other, place in self._places.items():
            if other != node.name:
                self._lose(node.name, place)
                self._lose(other, self._places[node.name])

    def cut(self, node: Node) -> None:
        """Drop all packets of a node."""
        self.cut_peers(node)
        self._lose(node.name, HERE)
        _ip("neighbor", "replace", f"{SUBNET}.{self._places[node.name]}", *_DEAD, BRIDGE)

    def _lose(self, name: str, place: int) -> None:
        _ip("-n", name, "neighbor", "replace", f"{SUBNET}.{place}", *_DEAD, INTERFACE)

    def heal(self, node: Node) -> None:
        """End all cuts of a node."""
        own = self._places[node.name]
        for other, place in self._places.items():
            if other != node.name:
                _ip("-n", node.name, "neighbor", "flush", "to", f"{SUBNET}.{place}", *_PERMANENT)
                _ip("-n", other, "neighbor", "flush", "to", f"{SUBNET}.{own}", *_PERMANENT)
        _ip("-n", node.name, "neighbor", "flush", "to", f"{SUBNET}.{HERE}", *_PERMANENT)
        _ip("neighbor", "flush", "to", f"{SUBNET}.{own}", *_PERMANENT)


_DEAD: Final = ("lladdr", NOBODY, "nud", "permanent", "dev")
_PERMANENT: Final = ("nud", "permanent")


def _move(node: Node, hosts: dict[str, str]) -> None:
    """Let a node use its new addresses, in its network."""
    pattern = re.compile("|".join(map(re.escape, hosts)))
    node.environment = {
        name: pattern.sub(lambda found: hosts[found[0]], text)
        for name, text in node.environment.items()
    }
    node.address = hosts[node.address]
    node.peer_address = hosts[node.peer_address]
    node.http_address = hosts[node.http_address]
    node.command_prefix = ("ip", "netns", "exec", node.name)
