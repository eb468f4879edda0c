"""Choose free addresses on loopback for nodes of demos, benches and tests."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

PORTS: Final = range(10_000, 32_768)
"""Ports below 32768; Linux uses higher ports for outgoing connections
(net.ipv4.ip_local_port_range)."""
_drawn: Final[set[int]] = set()
"""Ports that this process has drawn; each is locked as a byte of a file that all processes
share."""


def free_addresses(count: int) -> list[str]:
    """Return different free addresses on loopback.

    The ports are below the range of outgoing connections, so that no outgoing connection uses the
    port of a stopped node. For the same reason, a port that a running process has drawn is not
    drawn again.
    """
    draw = random.SystemRandom()
    ports: dict[int, None] = {}
    while len(ports) < count:
        port = draw.choice(PORTS)
        if port in _drawn:
            continue
        with socket.socket() as probe, suppress(OSError):
            fcntl.lockf(_drawn_by_others(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            _drawn.add(port)
            probe.bind(("127.0.0.1", port))
            ports[port] = None
    return [f"127.0.0.1:{port}" for port in ports]


@cache
def _drawn_by_others() -> int:
    """Return the open file in which each process locks the byte of each port that it has drawn."""
    path = Path(tempfile.gettempdir()) / f"taskraft-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
