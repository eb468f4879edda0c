"""Draw the ports of a development cluster."""

from taskraft_service.process.dev import dev_nodes
from tools.free_addresses import free_port

CONSOLE_OFFSET = -1


def dev_port(count: int) -> int:
    """Return a first port for ``taskraft dev``; draw all ports of its nodes and its console.

    Args:
        count: number of nodes.
    """
    offsets = [
        int(address.rpartition(":")[2])
        for node in dev_nodes(count, 0)
        for address in (node.client, node.peer, node.http)
    ]
    return free_port([CONSOLE_OFFSET, *offsets])
